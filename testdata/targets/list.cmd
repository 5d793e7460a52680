# RUN: ptir targets
