# RUN: ptir conform tiny testdata/conformance/tiny/specification --json
