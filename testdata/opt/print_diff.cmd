# RUN: ptir opt -p cse,dce --print-ir-diff testdata/opt/pipeline.ptir
