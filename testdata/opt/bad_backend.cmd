# FAIL[2]: ptir opt -p "elementwise-fusion{backend=tritn}" testdata/opt/f08.ptir
