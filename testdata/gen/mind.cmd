# RUN: ptir gen --seed 4 --from mind | ptir verify
