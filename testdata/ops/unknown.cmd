# FAIL[2]: ptir ops matmull
