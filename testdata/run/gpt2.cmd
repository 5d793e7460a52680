# RUN: ptir run testdata/ptir/dump/d04_gpt2_block_prefill.json --random 0 --engine reference --precision 3
