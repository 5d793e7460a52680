# RUN: ptir explain UnknownFormat
