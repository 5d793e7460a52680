"""The modelled machine: tiles with their defined elements, pipes, and when an asynchronous op takes effect.

A pipe does its tasks in the order of issue; pipes are independent. A synchronous op completes before the next op is issued;
an asynchronous one completes when it is waited for, when a later task of its pipe completes, or at the end (seed section 5;
facts 4.1 and 7). The three orders are `sequential` (at once), `adversarial` (as late as allowed) and `random`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from ptir_tools.core.arrays import Array, numpy_dtype
from ptir_tools.core.diagnostics import Violation
from ptir_tools.core.evaluate import Context
from ptir_tools.core.ir import Function, Op
from ptir_tools.core.lazy import lazy
from ptir_tools.core.types import EventType, TileType
from ptir_tools.dialects.pto.pipes import pipe_of

if TYPE_CHECKING:
    import numpy as np
else:
    np = lazy("numpy")

Box = tuple[int, ...]


class Tile:
    """A tile at run time: `values` of the whole static shape, which of them are `defined`, and the `valid` region."""

    __slots__ = ("defined", "type", "valid", "values")

    def __init__(self, t: TileType, valid: Box) -> None:
        shape = static_shape(t)
        self.type = t
        self.valid = valid
        self.values = np.zeros(shape, numpy_dtype(t.dtype))
        self.defined = np.zeros(shape, np.bool_)

    @property
    def box(self) -> tuple[slice, ...]:
        """The valid region as slices."""
        return box(self.valid)

    def fill(self, values: Array, defined: Array | bool) -> None:
        """Set the valid region."""
        self.values[self.box] = values
        self.defined[self.box] = defined


def box(valid: Box) -> tuple[slice, ...]:
    """The elements below `valid` as slices."""
    return tuple(slice(0, v) for v in valid)


def static_shape(t: TileType) -> Box:
    """The shape as numbers. Raises Violation("UnboundSymbol") for a `?`."""
    if not all(isinstance(d, int) for d in t.shape):
        raise Violation("UnboundSymbol", "a tile with a `?` extent cannot be run", help="give every extent of the tile type")
    return tuple(d for d in t.shape if isinstance(d, int))


@dataclass(slots=True, eq=False)
class Task:
    """An op that was issued: what it waits for and what it will do. It is also the event that it signals."""

    op: Op | None
    pipe: str
    waits: tuple[Task, ...]
    action: Callable[[], None]
    done: bool = False


@dataclass(slots=True)
class Machine:
    """Pipes and policies of one run; `functions` are those that calls may name."""

    context: Context
    functions: dict[str, Function] = field(default_factory=dict)
    order: str = "sequential"
    undef: str = "error"
    random: Random = field(default_factory=Random)
    pipes: dict[str, deque[Task]] = field(default_factory=dict)
    depth: int = 0

    def submit(self, task: Task, wait: bool) -> None:
        """Issue `task`; with `wait`, or in sequential order, it completes before this returns."""
        self.pipes.setdefault(task.pipe, deque()).append(task)
        if wait or self.order == "sequential":
            self.complete(task)
        elif self.order == "random":
            self.progress()

    def complete(self, task: Task) -> None:
        """Do `task`, and before it what it waits for and what its pipe was given earlier."""
        stack = [task]
        while stack:
            top = stack[-1]
            need = None if top.done else self._before(top)
            if need is not None:
                stack.append(need)
                continue
            stack.pop()
            if not top.done:
                self._perform(top)

    def _before(self, task: Task) -> Task | None:
        pending = next((w for w in task.waits if not w.done), None)
        head = self.pipes[task.pipe][0]
        return pending if pending is not None else None if head is task else head

    def _perform(self, task: Task) -> None:
        self.pipes[task.pipe].popleft()
        task.done = True
        try:
            task.action()
        except Violation:
            self.context.failed = self.context.failed or task.op
            raise

    def progress(self) -> None:
        """Let a random number of tasks complete, each next in its pipe with nothing left to wait for."""
        while self.random.random() < 0.5:
            ready = [q[0] for q in self.pipes.values() if q and all(w.done for w in q[0].waits)]
            if not ready:
                return
            self._perform(self.random.choice(ready))

    def drain(self, pipe: str | None = None) -> None:
        """Complete everything that was issued, or everything of one pipe."""
        for name, queue in self.pipes.items():
            while queue and pipe in (None, name):
                self.complete(queue[0])

    def settle(self, tile: Tile, region: tuple[slice, ...], what: str) -> Array:
        """The elements of `tile` in `region`, to be stored or reduced; undefined ones are an error or replaced (`--undef`)."""
        values, defined = tile.values[region], tile.defined[region]
        if defined.all():
            return values
        if self.undef == "error":
            at = [int(i) for i in np.argwhere(~defined)[0]]
            raise Violation("UndefinedElement", f"{what} reads element {at}, which is not defined", help=_UNDEFINED)
        return np.where(defined, values, self._filler(values))

    def _filler(self, values: Array) -> Array:
        if self.undef == "random":
            raw = bytes(self.random.getrandbits(8) for _ in range(values.size))
            return (np.frombuffer(raw, np.uint8).astype(np.float32) / 16 - 8).reshape(values.shape).astype(values.dtype)
        floats = values.dtype.kind not in "iub" and not values.dtype.name.startswith(("int", "uint"))
        return np.full(values.shape, np.nan if self.undef == "nan" and floats else 0, values.dtype)


_UNDEFINED = "it lies outside what was loaded or valid, or its asynchronous producer was not waited for"


def machine(context: Context) -> Machine:
    """The machine of a run."""
    found = context.state
    assert isinstance(found, Machine)
    return found


def issue(context: Context, wait: Sequence[Any], event: EventType | None, action: Callable[[], None], *made: Tile) -> Any:
    """Issue an op that fills the tiles `made` by `action`; its results: the tiles, and the event when it has one."""
    assert context.op is not None
    task = Task(context.op, pipe_of(context.op), tuple(wait), action)
    machine(context).submit(task, event is None)
    results = made if event is None else (*made, task)
    return results[0] if len(results) == 1 else results or None


def resolve(t: TileType, given: Sequence[Any], default: Box) -> Box:
    """The valid region of a result: the op's `valid`, else its type's, else `default`.

    Raises Violation("InvalidValid") unless 0 < valid <= shape (seed 3.2).
    """
    declared = tuple(v for v in t.valid if isinstance(v, int)) if t.valid is not None else ()
    shape = static_shape(t)
    valid = tuple(int(v) for v in given) or (declared if len(declared) == len(shape) else default)
    for d, (v, extent) in enumerate(zip(valid, shape, strict=True)):
        if not 0 < v <= extent:
            raise Violation("InvalidValid", f"valid[{d}] is {v}, must be in 1..{extent}", at="valid")
    return valid


def intersection(tiles: Sequence[Tile]) -> Box:
    """The region that is valid in all of `tiles`."""
    return tuple(map(min, zip(*(t.valid for t in tiles), strict=True)))
