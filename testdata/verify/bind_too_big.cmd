# FAIL[2]: ptir verify --bind N=99999999999999999999 testdata/verify/bind_unknown.ptir
