# RUN: ptir targets a3
