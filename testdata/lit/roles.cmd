# RUN: ptir lit testdata/lit/roles.lit
