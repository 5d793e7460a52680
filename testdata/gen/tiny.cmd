# RUN: ptir gen --seed 4 --from tiny | ptir translate --to ptir --check | ptir verify
