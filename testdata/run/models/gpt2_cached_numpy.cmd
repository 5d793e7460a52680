# RUN: ptir run -q testdata/models/gpt2_cached.ptir --inputs testdata/models/gpt2_cached.inputs.safetensors --engine numpy --expect testdata/models/gpt2_cached.expect.safetensors --rtol 0 --atol 5e-6
