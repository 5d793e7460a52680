# RUN: ptir lit testdata/lit/dedup.lit
