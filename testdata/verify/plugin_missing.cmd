# FAIL[4]: ptir verify --load testdata/plugins/missing.py testdata/verify/ok.ptir
