"""ONNX: an input format. After reading, the program is PTIR."""
