# RUN: ptir reduce testdata/opt/data/steps.ptir -q --check 'grep -q "return %g"'
