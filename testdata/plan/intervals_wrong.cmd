# FAIL[1]: ptir plan --from csv testdata/plan/data/wrong.csv
