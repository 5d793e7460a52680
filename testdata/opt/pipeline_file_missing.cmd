# FAIL[4]: ptir opt -p @testdata/opt/data/none.txt testdata/opt/data/steps.ptir
