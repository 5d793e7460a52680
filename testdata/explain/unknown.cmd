# FAIL[2]: ptir explain UnknownFromat
