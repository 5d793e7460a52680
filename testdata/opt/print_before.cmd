# RUN: ptir opt -p cse,dce --print-ir-before dce testdata/opt/pipeline.ptir
