# FAIL[3]: ptir plan --from csv --limit 1 testdata/plan/data/intervals.csv
