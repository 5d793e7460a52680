# RUN: ptir info testdata/translate/mlp.mind.ir
