# FAIL[2]: ptir gen --networks --seed 7 --only add
