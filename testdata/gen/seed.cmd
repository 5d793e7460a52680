# RUN: ptir gen --seed 3 --only add --only mul --only exp --only neg --only reduce_sum --only transpose --only reshape
