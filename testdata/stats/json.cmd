# RUN: ptir stats --json testdata/translate/mlp.mind.ir
