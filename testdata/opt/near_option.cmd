# FAIL[2]: ptir opt -p 'canonicalize{max_iterations=1}' testdata/opt/data/steps.ptir
