# RUN: ptir ops --dialect tiny
