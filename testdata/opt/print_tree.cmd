# RUN: ptir opt -p cse,dce --print-ir-tree %t/tree testdata/opt/pipeline.ptir
