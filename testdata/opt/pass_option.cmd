# RUN: ptir opt -p 'canonicalize{max-iterations=0}' testdata/opt/data/steps.ptir
