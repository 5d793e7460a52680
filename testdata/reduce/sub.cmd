# RUN: ptir reduce testdata/opt/data/steps.ptir --check 'grep -q sub'
