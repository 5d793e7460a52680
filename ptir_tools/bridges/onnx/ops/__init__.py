"""One function per ONNX operator, in files by what they do."""

from ptir_tools.bridges.onnx.ops import control, elementwise, index, matrix, normalize, quantize, reduce, shape, window


def load() -> None:
    """Importing this package fills the table."""
    assert all((control, elementwise, index, matrix, normalize, quantize, reduce, shape, window))
