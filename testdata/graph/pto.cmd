# RUN: ptir graph testdata/pto/40_control_flow.pto
