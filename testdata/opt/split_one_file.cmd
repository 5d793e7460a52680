# FAIL[2]: ptir opt --split-input --weights-to w.npz testdata/opt/split.ptir
