# FAIL[1]: ptir lit --gptrs testdata/lit/malformed.lit
