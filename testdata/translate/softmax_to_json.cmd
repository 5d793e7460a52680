# RUN: ptir translate --to ptir-json testdata/translate/softmax_to_dump.ptir
