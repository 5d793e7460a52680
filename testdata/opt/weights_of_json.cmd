# FAIL[2]: ptir opt testdata/models/mobilenet.ptir --to ptir-json --weights-to %t/w.npz
