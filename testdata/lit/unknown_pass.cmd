# FAIL[2]: ptir lit -p nothing testdata/lit/cse.lit
