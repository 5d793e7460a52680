# RUN: ptir explain e3001
