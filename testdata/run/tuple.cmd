# RUN: ptir run testdata/ptir/dump/d10_topk_tuple_gather.json --random 1 --precision 4
