# FAIL[2]: ptir gen --seed 3 --only nope
