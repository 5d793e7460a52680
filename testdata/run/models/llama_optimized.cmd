# RUN: ptir opt testdata/models/llama.ptir | ptir run -q - --inputs testdata/models/llama.inputs.safetensors --expect testdata/models/llama.expect.safetensors --rtol 0 --atol 5e-6
