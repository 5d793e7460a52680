# RUN: ptir explain UndefinedValue
