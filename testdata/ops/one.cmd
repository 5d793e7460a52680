# RUN: ptir ops dot_general
