# FAIL[1]: ptir bisect -p 'convert-float{to=f16}' testdata/bisect/data/overflowing.ptir
