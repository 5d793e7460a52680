# RUN: ptir opt -p 'quantize{calibration="testdata/opt/data/samples.npz",max-error=0.001}' testdata/opt/quantize.ptir
