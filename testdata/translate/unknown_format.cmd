# FAIL[2]: ptir translate --to ptri testdata/translate/mlp.mind.ir
