# FAIL[1]: ptir plan --from csv testdata/plan/data/columns.csv
