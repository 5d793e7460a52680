# RUN: ptir gen --seed 3
