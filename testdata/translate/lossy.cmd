# RUN: ptir translate --lossy --to mind testdata/translate/abs.ptir
