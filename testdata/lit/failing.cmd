# FAIL[1]: ptir lit --gptrs -p cse testdata/lit/failing.lit
