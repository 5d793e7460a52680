# RUN: ptir run -q testdata/models/gpt2_greedy.ptir --inputs testdata/models/gpt2_greedy.inputs.safetensors --expect testdata/models/gpt2_greedy.expect.safetensors --rtol 0 --atol 5e-6
