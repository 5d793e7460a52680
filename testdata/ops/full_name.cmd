# RUN: ptir ops mind.MatMul
