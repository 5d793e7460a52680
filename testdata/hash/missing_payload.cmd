# FAIL[1]: ptir hash testdata/ptir/dump/d19_inline_literals.dump.ptir
