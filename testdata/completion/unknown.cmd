# FAIL[2]: ptir completion powershell
