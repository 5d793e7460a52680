# RUN: ptir translate testdata/translate/mlp.mind.ir --to ptir | ptir translate --to mind --check
