# RUN: ptir gen --seed 5 --ops 20 --static | ptir opt --check | ptir plan --to csv
