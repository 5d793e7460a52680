# FAIL[2]: ptir opt -p 'fixpoint{n=0}(cse)' testdata/opt/data/steps.ptir
