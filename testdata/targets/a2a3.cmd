# RUN: ptir targets a2a3
