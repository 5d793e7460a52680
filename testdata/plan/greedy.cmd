# RUN: ptir plan --from csv --algorithm greedy testdata/plan/data/packable.csv
