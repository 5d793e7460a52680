# FAIL[2]: ptir run testdata/verify/ok.ptir --input x=missing.npy
