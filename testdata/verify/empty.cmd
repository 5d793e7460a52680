# FAIL[1]: ptir verify /dev/null
