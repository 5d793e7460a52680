# RUN: ptir run testdata/ptir/dump/d07_scan_cumsum.json --random 0 --precision 4
