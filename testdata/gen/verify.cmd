# RUN: ptir gen --seed 11 --ops 20 --to ptir-dump | ptir verify
