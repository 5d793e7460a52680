# FAIL[2]: ptir verify --taget a3 testdata/verify/ok.ptir
