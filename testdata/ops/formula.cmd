# FAIL[2]: ptir ops sigmoid
