# FAIL[2]: ptir opt --split-input --weights w.npz testdata/opt/split.ptir
