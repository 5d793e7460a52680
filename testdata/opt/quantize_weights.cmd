# RUN: ptir opt -p 'quantize{activations=none,weights=ui4,group=2}' testdata/opt/quantize.ptir
