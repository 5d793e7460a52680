# RUN: ptir run testdata/translate/mlp.mind.ir --input x=iota --input w=1 --input bias=[0,1,-1000,3,4]
