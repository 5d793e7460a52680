# RUN: ptir lit --gptrs testdata/lit/roles.lit
