# RUN: ptir translate testdata/translate/mlp.mind.ir --to mlir
