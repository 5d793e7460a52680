# RUN: ptir plan --from csv testdata/plan/data/intervals.csv
