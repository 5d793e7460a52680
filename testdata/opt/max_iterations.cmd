# RUN: ptir opt --max-iterations 0 -p canonicalize testdata/opt/data/steps.ptir
