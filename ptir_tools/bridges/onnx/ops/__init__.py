"""One function per ONNX operator, in files by what they do."""

from ptir_tools.bridges.onnx.ops import elementwise, index, matrix, normalize, reduce, shape, window


def load() -> None:
    """Importing this package fills the table."""
    assert all((elementwise, index, matrix, normalize, reduce, shape, window))
