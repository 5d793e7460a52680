# FAIL[2]: ptir ops concatenate
