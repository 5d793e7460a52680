# RUN: ptir plan --from csv --align 32 --algorithm greedy --order program --to csv testdata/plan/data/intervals.csv
