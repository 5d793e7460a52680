# RUN: ptir opt -p cse,fold,dce --print-ir-after change testdata/opt/pipeline.ptir
