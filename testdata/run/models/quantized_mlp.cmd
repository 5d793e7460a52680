# RUN: ptir run -q testdata/models/quantized_mlp.ptir --inputs testdata/models/quantized_mlp.inputs.safetensors --expect testdata/models/quantized_mlp.expect.safetensors --rtol 0 --atol 5e-6
