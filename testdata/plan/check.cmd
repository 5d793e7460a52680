# RUN: ptir plan --to json -o %t/plan.json testdata/ptir/dump/d07_scan_cumsum.json | ptir plan --check-plan %t/plan.json testdata/ptir/dump/d07_scan_cumsum.json
