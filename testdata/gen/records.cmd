# RUN: ptir gen --seed 6 --to mind-json
