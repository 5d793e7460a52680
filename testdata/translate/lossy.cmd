# RUN: ptir translate --lossy --to mind testdata/translate/tanh_to_mind.ptir
