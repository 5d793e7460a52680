# FAIL[2]: ptir translate testdata/translate/mlp.mind.ir
