"""One function per ONNX operator, in files by what they do."""

from ptir_tools.bridges.onnx.ops import (
    attention,
    contrib,
    control,
    elementwise,
    index,
    matrix,
    normalize,
    quantize,
    recurrent,
    reduce,
    resize,
    sequence,
    shape,
    signal,
    training,
    trees,
    window,
)

FILES = (
    attention,
    contrib,
    control,
    elementwise,
    index,
    matrix,
    normalize,
    quantize,
    recurrent,
    reduce,
    resize,
    sequence,
    shape,
    signal,
    training,
    trees,
    window,
)


def load() -> None:
    """Fill the table: importing the files does it."""
    assert FILES
