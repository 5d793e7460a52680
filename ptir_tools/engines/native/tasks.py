"""Kernel calls as tasks: checked once, and run one after the other without Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import accumulate, pairwise

from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import DType
from ptir_tools.core.extremes import MAXIMUM, MINIMUM
from ptir_tools.core.ir import Op
from ptir_tools.core.lazy import np
from ptir_tools.engines.native import rows, threads
from ptir_tools.engines.native.library import kernels
from ptir_tools.engines.numpy import control, movement
from ptir_tools.engines.numpy.frame import Frame
from ptir_tools.engines.numpy.integers import truncate
from ptir_tools.engines.numpy.steps import Running, Step, run_declared
from ptir_tools.engines.thresholds import at

NAMES = (
    "gemm",
    "igemm",
    "bgemm",
    "pack",
    "gemv",
    "conv",
    "windows",
    "layer_norm",
    "fold",
    "rescaled",
    "largest",
    "byte_sums",
    "trees",
    "transpose",
    "take",
    "tiles",
    "attention",
)
MOST_AXES = 8
WORDS = (1, 2, 4, 8)  # sizes in bytes of elements that can be copied

# The dtypes that decide an operation on integers; for a comparison those of its operands.
ARITHMETIC = ("add", "subtract", "multiply", "negative")
CHOOSING = ("maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor")
COMPARING = ("less", "less_equal", "equal", "not_equal", "greater", "greater_equal")
LOGICAL = ("logical_and", "logical_or", "logical_xor", "logical_not")

Task = Callable[[], None]


def linked(steps: Sequence[Step]) -> list[tuple[Step, int]]:
    """`steps` with tasks for those that need no Python, neighbors joined; each with the number of `steps` done after it."""
    found: list[tuple[Step, int]] = []
    tasks: list[Task] = []
    for done, step in enumerate(steps):
        if (task := _task(step)) is not None:
            tasks.append(task)
            continue
        if tasks:
            found.append((_together(tasks), done))
            tasks = []
        found.append((step, done + 1))
    return [*found, (_together(tasks), len(steps))] if tasks else found


def _together(tasks: list[Task]) -> Step:
    return (tasks[0] if len(tasks) == 1 else _in_turn(tasks), ())


def _in_turn(tasks: Sequence[Task], workers: int = 1) -> Task:
    made: Task = kernels().task("several", tuple(tasks), workers)
    return made


@cache
def _makers() -> dict[Callable[..., object], Callable[..., Task | None]]:
    """The functions that make a task of a step, by the step's function."""

    def maker(name: str) -> Callable[..., Task]:
        return lambda *arguments: kernels().task(name, *arguments)

    made: dict[Callable[..., object], Callable[..., Task | None]] = {getattr(kernels(), name): maker(name) for name in NAMES}
    made |= {getattr(np, name): partial(_integers, name) for name in kernels().INTEGER_OPS}
    made |= {extreme: partial(_integers, extreme.__name__) for extreme in (MAXIMUM, MINIMUM)}
    made |= {movement.copy_window: _read, movement.write_window: _written, rows.take_checked: _take}
    made |= {
        threads.in_turn: lambda steps: _several(steps, 1),
        threads.run_parts: lambda helpers, parts: _several(parts, helpers + 1),
    }
    return made | {
        truncate: _truncated,
        np.copyto: _copy,
        np.concatenate: _joined,
        control.choose: _choose,
        control.loop: _loop,
        control.walk: _walk,
    }


def _task(step: Step) -> Task | None:
    """The task that does the same as `step`; None if it needs Python."""
    function, arguments = step
    make = _makers().get(function)
    return make(*arguments) if make is not None else None


def _several(steps: Sequence[Step], workers: int) -> Task | None:
    tasks: list[Task] = []
    for step in steps:
        if (task := _task(step)) is None:
            return None
        tasks.append(task)
    return _in_turn(tasks, workers)


def _copy(out: Array, x: Array, casting: str = "") -> Task | None:
    """A copy of few elements or long runs of them, or of few integers to another dtype."""
    if not isinstance(x, np.ndarray):
        return None
    if x.dtype != out.dtype:
        return _integers("copyto", x, out)
    x = np.broadcast_to(x, out.shape)
    if not _is_copied(out) or np.may_share_memory(out, x):
        return None
    in_order = x.ndim and x.strides[-1] == out.strides[-1] == x.itemsize and x.shape[-1] * x.itemsize >= at.run
    return _copied(out, x) if in_order or x.size <= at.copied else None


def _joined(parts: Sequence[Array], axis: int, out: Array) -> Task | None:
    edges = [0, *accumulate(x.shape[axis] for x in parts)]
    before = (slice(None),) * (axis % out.ndim)
    return _all_in_turn([_copy(out[(*before, slice(a, b))], x) for x, (a, b) in zip(parts, pairwise(edges), strict=True)])


def _is_copied(x: Array) -> bool:
    return x.itemsize in WORDS and x.ndim <= MOST_AXES


def _copied(out: Array, x: Array) -> Task:
    if out.flags.c_contiguous and x.flags.c_contiguous:
        out, x = out.reshape(-1), x.reshape(-1)
    made: Task = kernels().task("copy", _words(out), _words(x))
    return made


def _words(x: Array) -> Array:
    return x.view(np.dtype(f"u{x.itemsize}"))


def _truncated(x: Array, out: Array, target: DType) -> Task | None:
    """Few floats to integers by the cast table."""
    if out.dtype.kind not in "iu" or out.size > at.copied or not _is_apart(x, out):
        return None
    made: Task = kernels().task("integers", out, x.reshape(out.shape), out, kernels().INTEGER_OPS.index("copyto"))
    return made


def _integers(name: str, *arguments: Array) -> Task | None:
    """An operation on few integers or bools as NumPy computes it; the last array is the result."""
    *ins, out = arguments
    x, y = ins[0], ins[-1]
    kinds = {a.dtype.kind for a in ins}
    if not kinds <= set("iub") or out.size > at.copied or not all(_is_apart(a, out) for a in ins):
        return None
    unsigned = any(a.dtype == np.uint64 for a in ins)  # 64-bit unsigned
    same = x.dtype == y.dtype
    fits = {
        **dict.fromkeys(ARITHMETIC, same and out.dtype == x.dtype and "b" not in kinds),
        **dict.fromkeys(CHOOSING, same and out.dtype == x.dtype),
        **dict.fromkeys(COMPARING, same and out.dtype.kind == "b"),
        **dict.fromkeys(LOGICAL, out.dtype.kind == "b"),
        "copyto": out.dtype.kind in "iub" or (out.dtype.char in "fd" and not unsigned),
    }
    if name == "negative" and x.dtype == np.int8 and out.dtype.kind == "i":  # masks for select, from 0 and 1
        fits[name] = True
    if not fits[name] or (unsigned and name in ("less", "less_equal", "greater", "greater_equal", "maximum", "minimum")):
        return None
    spread = [np.broadcast_to(a, out.shape) for a in (x, y)]
    made: Task = kernels().task("integers", out, *spread, kernels().INTEGER_OPS.index(name))
    return made


def _is_apart(x: Array, out: Array) -> bool:
    """Whether an operation may read `x` while it writes `out`, element by element."""
    return control.is_same(x, out) or not np.may_share_memory(x, out)


def _read(x: Array, start: Array, sizes: tuple[int, ...], out: Array) -> Task | None:
    return _window(out, x, start, 0)


def _written(out: Array, update: Array, start: Array, sizes: tuple[int, ...]) -> Task | None:
    return _window(out, np.broadcast_to(update, sizes), start, 1)


def _window(out: Array, x: Array, start: Array, writes: int) -> Task | None:
    if not _is_copied(out) or np.may_share_memory(out, x) or start.dtype.kind not in "iu" or not start.flags.c_contiguous:
        return None
    made: Task = kernels().task("window", _words(out), _words(x), start, writes)
    return made


def _take(op: Op, ins: Sequence[Array], outs: Sequence[Array], running: Running, steps: Sequence[Step]) -> Task | None:
    """A lookup of rows, if all indices are in range."""
    parts = _several(steps, 1)
    if parts is None:
        return None
    refuse = partial(_refuse, op, ins, outs, running)
    return _in_turn([kernels().task("inside", ins[1].reshape(-1), len(ins[0]), refuse), parts])


def _refuse(op: Op, ins: Sequence[Array], outs: Sequence[Array], running: Running) -> None:
    """Let the body of `op` report the error."""
    running.context.failed = running.context.failed or op
    run_declared(op, ins, outs, running)


def _copies(targets: Sequence[Array], sources: Sequence[Array]) -> Task | None:
    """Copy each source to its target, as if all at once."""
    pairs = [(t, s) for t, s in zip(targets, sources, strict=True) if not control.is_same(t, s)]
    if not all(_is_copied(t) and t.dtype == s.dtype and t.shape == s.shape for t, s in pairs):
        return None
    first: list[Task] = []
    if any(np.may_share_memory(t, s) for t, _ in pairs for _, s in pairs):
        between = [np.empty_like(t) for t, _ in pairs]
        first = [_copied(b, s) for b, (_, s) in zip(between, pairs, strict=True)]
        pairs = [(t, b) for b, (t, _) in zip(between, pairs, strict=True)]
    return _in_turn([*first, *(_copied(t, s) for t, s in pairs)])


def _all_in_turn(tasks: Sequence[Task | None]) -> Task | None:
    known = [t for t in tasks if t is not None]
    return _in_turn(known) if len(known) == len(tasks) else None


def _choose(pred: Array, arguments: Sequence[Array], when: Frame, otherwise: Frame, outs: Sequence[Array]) -> Task | None:
    made: list[Task] = []
    for frame in (when, otherwise):
        steps = [_copies(frame.parameters, arguments), _several(frame.steps, 1), _copies(outs, frame.results)]
        if (task := _all_in_turn(steps)) is None:
            return None
        made.append(task)
    return kernels().task("branch", pred, tuple(made))  # type: ignore[no-any-return]


def _loop(carry: Sequence[Array], test: Frame, body: Frame, outs: Sequence[Array], running: Running) -> Task | None:
    flag, *kept = test.results
    limit = running.context.limits.iterations
    first, tested, last = _copies(outs, carry), _several(test.steps, 1), _copies(outs, kept)
    again = _all_in_turn([_copies(outs, kept), _several(body.steps, 1), _copies(outs, body.results)])
    if tested is None or again is None:
        return None
    repeated = kernels().task("repeat", flag, (tested, again), limit, partial(control.exceeded, limit))
    return _all_in_turn([first, repeated, last])


def _walk(carry: Sequence[Array], inputs: Sequence[Array], body: Frame, outs: Sequence[Array], running: Running) -> Task | None:
    count = len(carry)
    kept, stacked = body.parameters[:count], body.parameters[count:]
    reads, writes = [*zip(stacked, inputs, strict=True)], [*zip(outs[count:], body.results[count:], strict=True)]
    first, again = _copies(kept, carry), _copies(kept, body.results[:count])
    step = _several(body.steps, 1)
    if step is None or again is None or not all(_is_copied(a) and a.dtype == b.dtype for a, b in [*reads, *writes]):
        return None
    pairs = [tuple((_words(a), _words(b)) for a, b in both) for both in (reads, writes)]
    return _all_in_turn([first, kernels().task("walk", (step, again), *pairs)])
