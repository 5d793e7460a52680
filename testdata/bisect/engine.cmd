# RUN: ptir bisect testdata/opt/data/steps.ptir --engine numpy
