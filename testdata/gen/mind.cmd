# RUN: ptir gen --seed 5 --ir mind | ptir verify
