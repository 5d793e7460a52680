# RUN: ptir gen --networks --seed 7 --ops 3 | ptir verify -
