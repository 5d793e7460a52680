# RUN: ptir gen --seed 11 --steps 20 --to ptir-dump | ptir verify
