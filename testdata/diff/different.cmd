# FAIL[1]: ptir diff testdata/mind/11_fold_before.mind.ir testdata/mind/11b_fold_after.mind.ir
