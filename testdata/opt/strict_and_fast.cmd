# FAIL[2]: ptir opt --strict-fp --fast-math testdata/opt/default.ptir
