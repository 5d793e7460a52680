# FAIL[2]: ptir hash testdata/mind/02_mlp_relu.mind.ir
