"""How many ops the regions of an op become where a target has no regions: each is copied wherever it is run."""

from __future__ import annotations

from ptir_tools.convert.emitter import NOT_TRANSLATABLE
from ptir_tools.core.ir import Loop, Op, Region
from ptir_tools.core.violations import require
from ptir_tools.rewrite.vocabulary import tensor_type

IN_LINE = 100_000  # ops that the regions of one op become at most, each copied for every op that runs it and every step
DEEP = 64  # regions in regions at most


def require_few(op: Op, unrolled: bool = True) -> None:
    """Refuse regions that would be too much in line; `unrolled`: every step of a scan is. Raises Violation."""
    count, depth = _in_line(op, unrolled)
    require(depth <= DEEP, NOT_TRANSLATABLE, f"regions run regions {depth} deep: no more than {DEEP} are put in line")
    message = f"the regions would be {count} ops in line, each copied where it is run: no more than {IN_LINE} are"
    require(count <= IN_LINE, NOT_TRANSLATABLE, message)


def _in_line(root: Op, unrolled: bool) -> tuple[int, int]:
    """How many ops the regions of `root` become, and how deep they run each other."""
    known: dict[Region, tuple[int, int]] = {}

    def size(op: Op) -> tuple[int, int]:
        steps = 1
        if (
            unrolled
            and op.defn.short == "scan"
            and isinstance(n := tensor_type(op.operands[op.attr("carry_count")]).shape[0], int)
        ):
            steps = n
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
    """How often a loop over slices runs its region, as far as that is known; 1 for every other op."""
    loop = op.defn.control
    if not isinstance(loop, Loop) or loop.test is not None or len(op.operands) <= loop.carries(op):
        return 1
    n = tensor_type(op.operands[loop.carries(op)]).shape[0]
    return n if isinstance(n, int) else 1
