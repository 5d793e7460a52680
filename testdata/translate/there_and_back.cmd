# RUN: ptir translate --to ptir-dump testdata/translate/softmax_to_dump.ptir | ptir translate --to ptir
