# FAIL[2]: ptir gen
