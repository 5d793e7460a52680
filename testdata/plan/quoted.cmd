# RUN: ptir plan --from csv testdata/plan/quoted.csv
