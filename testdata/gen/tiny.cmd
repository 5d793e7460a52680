# RUN: ptir gen --seed 4 --ir tiny | ptir translate --to ptir --check | ptir verify
