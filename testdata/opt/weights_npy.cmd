# FAIL[2]: ptir opt testdata/models/mobilenet.ptir --weights %t/w.npy
