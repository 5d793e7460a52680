# RUN: ptir run -q testdata/models/gpt2_prefill.ptir --inputs testdata/models/gpt2_prefill.inputs.safetensors --expect testdata/models/gpt2_prefill.expect.safetensors --rtol 0 --atol 5e-6
