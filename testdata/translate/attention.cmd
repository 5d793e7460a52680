# RUN: ptir translate testdata/tiny/05_attention_full.json --to ptir --check --bind B=2 --bind H=2
