"""The NumPy engine: PTIR is canonicalized, planned into one arena, and run as a flat list of prepared calls."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterator, Mapping, Sequence
from copy import copy
from functools import cache

from ptir_tools.core.arrays import Array
from ptir_tools.core.dialect import Program
from ptir_tools.core.evaluate import Context, Data
from ptir_tools.core.ir import Function, Op, Region, Value, operand_type
from ptir_tools.core.lazy import lazy, np
from ptir_tools.core.records import replace
from ptir_tools.core.types import flatten, nest
from ptir_tools.engines.numpy import constants, linalg, movement
from ptir_tools.engines.numpy.frame import Frame, Shared, aligned
from ptir_tools.engines.numpy.poison import Poison, Seals
from ptir_tools.engines.numpy.steps import Builder, Step, Target, declared
from ptir_tools.engines.options import RunOptions
from ptir_tools.engines.reference import widest
from ptir_tools.engines.thresholds import at
from ptir_tools.plan import BlockPlan, Method, Plan, plan_block
from ptir_tools.plan.liveness import Buffer, Unit

# Frequent families first: the next one is imported if the form is not in the previous ones.
_FAMILIES = (
    *("elementwise", "movement", "linalg", "control", "indexing", "integers"),
    *("reduce", "normalize", "windows", "scatter", "ranking", "draws"),
)


@cache
def _builder_of_form(form: str) -> Builder:
    """The builder for a form that declarations name (`core.ir.InPlace`)."""
    families = (lazy(f"ptir_tools.engines.numpy.{name}").BUILDERS for name in _FAMILIES)
    return next(entry[form] for entry in families if form in entry)  # type: ignore[no-any-return]


def one_by_one(block: Region) -> list[Unit]:
    """A partition in which every op is a unit."""
    return [Unit((op,)) for op in block.body]


def builder(op: Op) -> Builder:
    """The builder of the steps of `op`: the form that its declaration names, a copy of a view, or its body."""
    if (inplace := op.defn.inplace) is not None:
        return _builder_of_form(inplace.form)
    return declared if op.defn.view is None else movement.copied


TARGET = Target(builder, one_by_one)


class Bound:
    """A program bound to its arguments. Every call overwrites the arrays of the previous call's results."""

    def __init__(self, executable: Executable, arguments: Sequence[Data]) -> None:
        self.function = executable.function
        self.given = list(flatten(tuple(arguments)))
        self.frame = self.built(executable)
        while self.shared.short:  # now the scratch size is known
            executable.scratch = self.shared.wanted
            del self.frame, self.shared
            self.frame = self.built(executable)
        executable.scratch = max(executable.scratch, self.shared.wanted)
        constants.settle()
        self.results, self.copies = _returned(self.frame)

    def another(self) -> Bound:
        """A copy with its own results; everything else is shared, so only one of them runs at a time."""
        result = copy(self)
        self.shared.restart()
        result.frame = Frame(self.function, self.frame.own, self.frame.arena, self.shared, self.given)
        result.results, result.copies = _returned(result.frame)
        return result

    def forget(self, units: Sequence[int], values: Container[Value]) -> None:
        """Refer no more to the arrays of `values`, which the steps of `units` use."""
        self.given, self.results, self.copies = [], [], []
        self.frame.forget(units, values)

    def refit(self, units: Sequence[int], given: Sequence[Array], handed: Mapping[Buffer, Array]) -> None:
        """Build some units again, on other inputs and other memory of results. The types that they read have new extents."""
        self.given = list(given)
        self.frame.refit(units, given, handed)
        self.results, self.copies = _returned(self.frame)

    def built(self, executable: Executable) -> Frame:
        """The steps, with their own arena and scratch memory."""
        poison = Poison() if executable.poisons else None
        self.shared = Shared(executable.plan, executable.target, executable.kept, executable.scratch, poison)
        return Frame(self.function, executable.own, self.shared.fresh(executable.own.peak), self.shared, self.given)

    def __call__(self, context: Context) -> list[Array]:
        """Run; the leaves of the results. Raises Violation; `context.failed` is then the op."""
        seals = Seals(self.only_read()) if self.shared.poison is not None else None
        result = self.run(context)
        if seals is not None:
            seals.check()
        return result

    def only_read(self) -> Iterator[tuple[str, Array]]:
        """The inputs and constants, with words for them."""
        yield from ((f"input {i}", x) for i, x in enumerate(self.given))
        yield from (("a converted constant", x) for x in self.shared.kept.values())
        for block in (self.function, *self.shared.plan.regions):
            for x in (op.attr("value") for op in block.body if op.defn.is_constant):
                if isinstance(data := x.payload, bytes):  # read once: another thread may free it
                    yield f"a constant {x.type}", np.frombuffer(data, np.uint8)

    def run(self, context: Context) -> list[Array]:
        self.shared.context = context
        if self.frame.is_quiet(context):
            self.frame.run()
        else:
            with np.errstate(all="ignore"):
                self.frame.run()
        for function, operands in self.copies:
            function(*operands)
        return self.results


def _returned(frame: Frame) -> tuple[list[Array], list[Step]]:
    """The returned arrays, and the steps that copy into them: parameters, constants, views, and repeated results."""
    owned = {id(owner(raw)): raw.nbytes for raw in frame.handed.values()}
    results: list[Array] = []
    copies: list[Step] = []
    for array in frame.results:
        if array.flags.c_contiguous and owned.get(id(owner(array))) == array.nbytes:
            del owned[id(owner(array))]
            results.append(array)
            continue
        fresh = (
            aligned(array.nbytes).view(array.dtype).reshape(array.shape) if array.nbytes else np.empty(array.shape, array.dtype)
        )
        results.append(fresh)
        copies += frame.copied(fresh, array)
    return results, copies


def owner(array: Array) -> object:
    """The object that owns the memory of `array`."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


class Executable:
    """A static PTIR program, planned. `target` has the hooks of the engine."""

    def __init__(self, program: Program, function: Function, options: RunOptions, target: Target = TARGET) -> None:
        self.function = function
        self.target = target = replace(target, partition=cache(target.partition))  # one for the plan and one for each binding
        self.plan = Plan(method=Method("quick"))
        self.own: BlockPlan = plan_block(function, self.plan, target.partition)
        self.kept: dict[Hashable, Array] = {}  # packed and converted constants, made once
        self.scratch = at.scratch  # bytes of scratch of the widest step; known when bound
        self.poisons = options.poison

    @property
    def memory(self) -> int:
        """The bytes of a run: the plan and packed constants, or the operands and results of its widest op, if more."""
        blocks = (self.function, *self.plan.regions)
        return max(self.own.total + linalg.kept_bytes(blocks, self.target.packed), widest(blocks))

    def bind(self, arguments: Sequence[Data]) -> Bound:
        """The program on these arguments, ready to run repeatedly."""
        return Bound(self, arguments)

    def __call__(self, arguments: Sequence[Data], context: Context) -> tuple[Data, ...]:
        """The results, fresh arrays. Raises Violation; `context.failed` is then the op."""
        result = iter(self.bind(arguments)(context))
        return tuple(nest(operand_type(x), result) for x in self.function.results)
