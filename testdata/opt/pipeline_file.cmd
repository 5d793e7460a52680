# RUN: ptir opt -p @testdata/opt/data/pipeline.txt testdata/opt/data/steps.ptir
