# FAIL[2]: ptir opt -p 'quantize{calibration="testdata/opt/data/samples.npz"}' testdata/opt/prune.ptir
