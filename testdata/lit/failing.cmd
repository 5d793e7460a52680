# FAIL[1]: ptir lit -p cse testdata/lit/failing.lit
