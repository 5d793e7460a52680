# RUN: ptir translate testdata/tiny/05_attention_full.json --to ptir | ptir opt -p raise-contractions,canonicalize,cse,dce
