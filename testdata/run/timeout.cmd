# FAIL[3]: ptir run testdata/run/endless.ptir --input x=0 --max-iterations 1T --timeout 0.2
