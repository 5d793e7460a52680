# RUN: ptir gen --seed 6 --ops 20 --static | ptir opt --check | ptir plan --to csv
