# RUN: ptir opt --to ptir-dump testdata/opt/pipeline.ptir
