# RUN: ptir gen --seed 9 --ops 20 --static | ptir opt --check | ptir plan --to csv
