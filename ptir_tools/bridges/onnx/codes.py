"""The codes of reading ONNX."""

from ptir_tools.core.dialect import Code

EXPLAIN: tuple[Code, ...] = (
    Code(
        "InvalidModel",
        "The file is an ONNX model or StableHLO bytecode, and is damaged or breaks a rule of the format. Examples are a "
        "truncated file, an initializer with too few bytes for its type, and a node whose input nothing defines.",
    ),
    Code(
        "UnsupportedOnnx",
        "PTIR cannot express a part of an ONNX model. Examples are strings, optionals, sequences of unknown length, extents "
        "that depend on data, and operators without a translation. All such nodes are reported in one run, each with its reason.",
    ),
    Code(
        "OnnxNeedsConstant",
        "The type of a node's result depends on the value of an operand, which is known only when the model runs. It must be "
        "known when the model is read. If it is an input, `--set NAME=[1,2,3]` makes it a constant.",
    ),
)
