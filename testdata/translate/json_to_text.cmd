# RUN: ptir translate testdata/ptir/dump/d10_topk_tuple_gather.json --to ptir
