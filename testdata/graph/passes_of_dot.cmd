# FAIL[2]: ptir graph testdata/info/program.ptir -p cse
