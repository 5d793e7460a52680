# RUN: ptir plan --from csv --to csv testdata/plan/data/intervals.csv | ptir plan --from csv --to csv
