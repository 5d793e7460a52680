# RUN: ptir conform mind testdata/conformance/mind/specification
