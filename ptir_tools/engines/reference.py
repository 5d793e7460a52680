"""The reference engine, which defines results: it runs every op by its declared body, in any dialect whose values are arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ptir_tools.core.dialect import Program
from ptir_tools.core.evaluate import Context, Data, run_block
from ptir_tools.core.ir import Function, Region, operand_type
from ptir_tools.core.lazy import np
from ptir_tools.core.types import flatten, nest
from ptir_tools.engines.options import RunOptions
from ptir_tools.plan import Method, Plan, plan_block
from ptir_tools.plan.liveness import leaves


class Executable:
    """A static program, ready to run by its declarations."""

    def __init__(self, program: Program, function: Function, options: RunOptions) -> None:
        self.function = function

    @property
    def memory(self) -> int:
        """An upper estimate of the bytes that a run takes: the plan, and the widest op in float64."""
        plan = Plan(method=Method("quick"))
        total = plan_block(self.function, plan).total
        return total + widest((self.function, *plan.regions), 8)

    def __call__(self, arguments: Sequence[Data], context: Context) -> tuple[Data, ...]:
        """The results, one per result of the function, fresh arrays. Raises Violation; `context.failed` is the op."""
        result = without_aliases(run_block(self.function, arguments, context), arguments)
        return tuple(nest(operand_type(x), result) for x in self.function.results)


def without_aliases(results: Sequence[Data], arguments: Sequence[Data]) -> Iterator[Data]:
    """The leaves of `results`, row-major. An argument, a view, or a repeated array is copied."""
    used = set(map(id, flatten(tuple(arguments))))
    for array in map(np.asarray, flatten(tuple(results))):
        alone = array.base is None and array.flags.c_contiguous and id(array) not in used
        used.add(id(array))
        yield array if alone else np.array(array, order="C")


def widest(blocks: Iterable[Region], item: int | None = None) -> int:
    """The most bytes that one op reads and writes, with `item` bytes per element (None: of its dtype). An op on a view reads
    all of the source."""
    ops = [op for b in blocks for op in b.body if not op.defn.is_movement]
    types = {(*map(operand_type, op.operands), *[v.type for v in op.results]) for op in ops}
    return max((sum(leaf.count * (item or leaf.dtype.size) for t in ts for _, leaf in leaves(t)) for ts in types), default=0)
