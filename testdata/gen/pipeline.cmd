# RUN: ptir gen --seed 5 --steps 20 | ptir opt --check | ptir plan --to csv
