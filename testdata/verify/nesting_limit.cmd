# FAIL[3]: ptir verify --max-file-bytes 10 testdata/verify/ok.ptir
