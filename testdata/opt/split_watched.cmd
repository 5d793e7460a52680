# RUN: ptir opt --split-input -p cse,dce --print-ir-diff --print-ir-after dce --log-rewrites - testdata/opt/data/split.ptir
