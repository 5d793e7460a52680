# RUN: ptir plan --order min-peak testdata/ptir/dump/d03_attention_canonical.json
