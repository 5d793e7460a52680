# FAIL[2]: ptir gen --ir pto --seed 3 --only tile.add
