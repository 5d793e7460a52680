"""A rule with a mistake, for docs/disagree.md: it forgets that what is subtracted from a difference is added."""

from ptir_tools import plugins
from ptir_tools.rewriting import OpView, rewrites


@rewrites("ptir.sub")
def sub_of_sub(op: OpView) -> bool:
    """`a - (b - c)` is not `(a - b) - c`."""
    inner = op.defined_by(op.y, "sub")
    if inner is None:
        return False
    return op.replace(op.rw.build(op.root, "sub", op.rw.build(op.root, "sub", op.x, inner.x), inner.y))


plugins.add_rules("ptir", sub_of_sub)
