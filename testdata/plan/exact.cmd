# RUN: ptir plan --from csv --algorithm exact --to csv testdata/plan/data/packable.csv
