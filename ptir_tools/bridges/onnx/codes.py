"""The codes of reading ONNX."""

from ptir_tools.core.dialect import Code

EXPLAIN: tuple[Code, ...] = (
    Code(
        "InvalidModel",
        "The file is recognized as an ONNX model, or as bytecode of StableHLO, and is damaged or breaks a rule of it. It is cut "
        "short, or an initializer does not have the bytes of its type, or a node reads a value that nothing defines.",
    ),
    Code(
        "UnsupportedOnnx",
        "An ONNX model has what PTIR cannot express: strings, optionals, sequences of unknown length, extents that "
        "depend on data, an operator that has no translation. All such nodes are reported at once, each with its reason.",
    ),
    Code(
        "OnnxNeedsConstant",
        "An operand of an ONNX node decides the type of its result, and is computed or given when the model runs. It must be "
        "known when the model is read. When it is an input, `--set NAME=[1,2,3]` makes it a constant.",
    ),
)
