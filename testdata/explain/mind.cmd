# RUN: ptir explain E3001
