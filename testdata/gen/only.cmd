# RUN: ptir gen --seed 3 --ir mind --only Conv2d --only Gather --ops 3 --count 2
