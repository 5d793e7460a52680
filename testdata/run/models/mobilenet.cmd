# RUN: ptir run -q testdata/models/mobilenet.ptir --inputs testdata/models/mobilenet.inputs.safetensors --expect testdata/models/mobilenet.expect.safetensors --rtol 0 --atol 5e-6
