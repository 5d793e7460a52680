# FAIL[2]: ptir lit --gptrs -p nothing testdata/lit/cse.lit
