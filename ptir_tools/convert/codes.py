"""The codes of translation."""

from ptir_tools.core.dialect import Code

_FUNC = "func @main(%x: tensor<f32, 2x3>) -> tensor<f32, 2x3> {{\n  {}\n  return %y\n}}\n".format

EXPLAIN: tuple[Code, ...] = (
    Code(
        "NotTranslatable",
        "The target of a translation cannot express an op, a type or an attribute. All such places are reported in one run, "
        "each with the reason, and with a pass or option that helps if there is one.\n\n"
        "The examples are for `ptir translate --to mind`.",
        _FUNC("%y = tanh(%x) -> tensor<f32, 2x3>"),
        _FUNC("%y = exp(%x) -> tensor<f32, 2x3>"),
        "ptir",
    ),
    Code(
        "ConditionalTranslation",
        "An op was translated under a condition that the program meets, or with `--lossy` at a price. The message says "
        "which.\n\nThe first example is for `ptir translate --to mind`: the reciprocal of 4 is exact.",
        _FUNC("%y = div(%x, dense<4.0> : tensor<f32, 2x3>) -> tensor<f32, 2x3>"),
        _FUNC("%y = mul(%x, dense<0.25> : tensor<f32, 2x3>) -> tensor<f32, 2x3>"),
        "ptir",
    ),
    Code(
        "ConstantsLeft",
        "Warning: the target has no constants, so they became parameters, and their values are not written. "
        "`--constants FILE.npz` writes them. A run needs them as inputs.\n\n"
        "The examples are for `ptir translate --to pto`.",
        _FUNC("%y = add(%x, dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]> : tensor<f32, 2x3>) -> tensor<f32, 2x3>"),
        _FUNC("%y = add(%x, dense<0.5> : tensor<f32, 2x3>) -> tensor<f32, 2x3>"),
        "ptir",
    ),
)
