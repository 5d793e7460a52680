# RUN: ptir stats testdata/ptir/dump/d04_gpt2_block_prefill.json
