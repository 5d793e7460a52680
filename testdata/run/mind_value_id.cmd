# RUN: ptir run testdata/translate/mlp.mind.ir --input %0=iota --input 1=1 --input bias=-10
