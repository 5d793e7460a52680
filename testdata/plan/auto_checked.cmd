# RUN: ptir plan --from csv testdata/plan/data/packable.csv --to json -o %t/plan.json | ptir plan --from csv --check-plan %t/plan.json testdata/plan/data/packable.csv
