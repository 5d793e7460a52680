"""The number of ops after inlining, for targets without regions: each region is copied wherever it is run."""

from __future__ import annotations

from ptir_tools.convert.emitter import NOT_TRANSLATABLE
from ptir_tools.core.ir import Loop, Op, Region
from ptir_tools.core.violations import require
from ptir_tools.rewrite.vocabulary import tensor_type

MAX_INLINED = 100_000  # the most ops that the regions of one op become, copied for every op and step that runs them
UNROLLED = 1024  # the most steps of a scan
MAX_DEPTH = 64  # the deepest nesting of regions


def require_few(op: Op, unrolled: bool = True) -> None:
    """Raise Violation if inlining the regions of `op` would give too many ops; with `unrolled` every step of a scan is a copy."""
    count, depth = _inlined(op, unrolled)
    require(depth <= MAX_DEPTH, NOT_TRANSLATABLE, f"regions run regions {depth} deep: no more than {MAX_DEPTH} are put in line")
    message = f"the regions would be {count} ops in line, each copied where it is run: no more than {MAX_INLINED} are"
    require(count <= MAX_INLINED, NOT_TRANSLATABLE, message)


def _inlined(root: Op, unrolled: bool) -> tuple[int, int]:
    """The number of ops that the regions of `root` become, and the depth of their nesting."""
    known: dict[Region, tuple[int, int]] = {}

    def size(op: Op) -> tuple[int, int]:
        steps = _steps(op) if unrolled else 1
        below = [known[r] for r in op.regions]
        return 1 + steps * sum(n for n, _ in below), max((d + 1 for _, d in below), default=0)

    todo = [*root.regions]
    while todo:
        block = todo[-1]
        if block not in known and (ahead := [r for op in block.body for r in op.regions if r not in known]):
            todo += ahead
            continue
        sizes = [size(op) for op in todo.pop().body]
        known[block] = sum(n for n, _ in sizes), max((d for _, d in sizes), default=0)
    return size(root)


def _steps(op: Op) -> int:
    """The known trip count of a loop over slices; 1 for any other op."""
    loop = op.defn.control
    if not isinstance(loop, Loop) or loop.test is not None or len(op.operands) <= loop.carries(op):
        return 1
    n = tensor_type(op.operands[loop.carries(op)]).shape[0]
    return n if isinstance(n, int) else 1
