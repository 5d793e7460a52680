# RUN: ptir gen --seed 4 --ir mind | ptir verify
