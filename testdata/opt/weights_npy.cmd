# FAIL[2]: ptir opt testdata/models/mobilenet.ptir --weights-to %t/w.npy
