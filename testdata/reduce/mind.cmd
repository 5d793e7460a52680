# RUN: ptir reduce testdata/mind/02_mlp_relu.mind.ir --check 'grep -q Relu'
