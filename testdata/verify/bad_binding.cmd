# FAIL[2]: ptir verify --bind N=-1 testdata/verify/ok.ptir
