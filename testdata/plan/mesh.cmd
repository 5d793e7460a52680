# RUN: ptir plan testdata/plan/mlp.ptir --mesh x=4,y=2 --shard x=x,- --shard w=-,y --shard v=y
