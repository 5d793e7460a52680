# RUN: ptir opt -p 'canonicalize{max-iterations=1},fixpoint{n=1}(cse,dce)' testdata/opt/data/steps.ptir
