# FAIL[2]: ptir opt --run-reproducer testdata/opt/data/steps.ptir
