# RUN: ptir run -q testdata/models/llama.ptir --inputs testdata/models/llama.inputs.safetensors --expect testdata/models/llama.expect.safetensors --rtol 0 --atol 5e-6
