# RUN: ptir reduce testdata/ptir/dump/d07_scan_cumsum.json --check 'grep -q Scan'
