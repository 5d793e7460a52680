# FAIL[2]: ptir diff testdata/mind/11_fold_before.mind.ir testdata/verify/ok.ptir
