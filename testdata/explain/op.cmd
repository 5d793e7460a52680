# FAIL[2]: ptir explain add
