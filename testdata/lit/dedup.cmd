# RUN: ptir lit --gptrs testdata/lit/dedup.lit
