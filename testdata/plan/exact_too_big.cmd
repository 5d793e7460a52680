# FAIL[3]: ptir plan --from csv --algorithm exact --limit 1023 --time-limit 0 testdata/plan/data/packable.csv
