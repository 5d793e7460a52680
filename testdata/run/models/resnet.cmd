# RUN: ptir run -q testdata/models/resnet.ptir --inputs testdata/models/resnet.inputs.safetensors --expect testdata/models/resnet.expect.safetensors --rtol 0 --atol 5e-6
