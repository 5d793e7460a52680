# RUN: ptir plan --from csv --algorithm exact --limit 1024 testdata/plan/data/packable.csv
