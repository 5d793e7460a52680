"""A plug-in of one file: a rule, a pass and a kernel of a custom call. See docs/plugins.md."""

import numpy as np

from ptir_tools import plugins
from ptir_tools.dialects.ptir.kernels.targets import Target
from ptir_tools.rewriting import OpView, rewrites


# A rule. `canonicalize` drives it, too.
@rewrites("ptir.erf", operands=["ptir.neg"])
def erf_of_neg(op: OpView) -> bool:
    """`erf` is odd: what is negated before can be negated after."""
    inner = op.defined_by(op.x, "neg")
    return inner is not None and op.replace(op.rw.build(op.root, "neg", op.rw.build(op.root, "erf", inner.x)))


plugins.add_rules("ptir", erf_of_neg)


# A pass: its first line is the help in `ptir opt --list-passes`.
def run(program, context):
    """Rename every value to `v0`, `v1`, … in order of definition."""
    start = context.options["start"]
    for function in program.functions:
        values = [*function.params, *(v for op in function.body for v in op.results)]
        for i, v in enumerate(values, start):
            v.name = f"v{i}"
        context.count("renamed", len(values))


plugins.add_pass("number-values", "ptir", run, options={"start": 0})


# A kernel of a custom call: how many operands, its type, its meaning on float64 arrays, its attributes.
def same_type(types, values):
    return types[0]


def softplus(xs, values, result):
    return np.log1p(np.exp(xs[0] * values["beta"])) / values["beta"]


plugins.add_kernel("mine.softplus.v1", Target((1, 1), same_type, softplus, {"beta": "F64"}, {}))
