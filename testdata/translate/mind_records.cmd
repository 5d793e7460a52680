# RUN: ptir translate --to mind-json testdata/translate/mlp.mind.ir
