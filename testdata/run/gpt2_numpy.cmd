# RUN: ptir run -q testdata/ptir/dump/d04_gpt2_block_prefill.json --random 0 --engine numpy --compare reference --precision 3
