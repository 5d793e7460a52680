# RUN: ptir diff --run testdata/mind/11_fold_before.mind.ir testdata/mind/11b_fold_after.mind.ir
