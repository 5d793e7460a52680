# RUN: ptir opt --bisect-limit 1 testdata/opt/data/steps.ptir
