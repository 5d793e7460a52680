# RUN: ptir gen --ir pto --seed 3 | ptir verify -q
