# RUN: ptir opt testdata/tiny/16_unordered_nodes.json
