"""Steps that are calls of kernels as tasks: checked once, and run one after the other without Python in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from ptir_tools.core.lazy import lazy
from ptir_tools.engines.native import threads
from ptir_tools.engines.native.library import kernels
from ptir_tools.engines.native.tiles import in_turn
from ptir_tools.engines.numpy.steps import Step

if TYPE_CHECKING:
    import numpy as np

    from ptir_tools.core.arrays import Array
else:
    np = lazy("numpy")

NAMES = ("gemm", "igemm", "bgemm", "gemv", "conv", "windows", "layer_norm", "fold", "rescaled", "turn", "tiles")
FEW = 1 << 12  # elements of a copy that may be element by element
RUN = 64  # bytes one after the other that a longer copy has
MOST_AXES = 8

Task = Callable[[], None]


def linked(steps: Sequence[Step]) -> list[tuple[Step, int]]:
    """`steps` with tasks for those that need no Python, neighbors as one; each with how many of `steps` are done after it."""
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
    return (tasks[0] if len(tasks) == 1 else kernels().several(tuple(tasks), 1), ())


@cache
def _names() -> dict[Callable[..., object], str]:
    return {getattr(kernels(), name): name for name in NAMES}


def _task(step: Step) -> Task | None:
    """The task that does what `step` does; None where it takes Python."""
    function, arguments = step
    if (name := _names().get(function)) is not None:
        made: Task = kernels().task(name, *arguments)
        return made
    if function is in_turn:
        return _several(arguments[0], 1)
    if function is threads.run_parts:
        helpers, parts = arguments
        return _several(parts, helpers + 1)
    return _copy(*arguments) if function is np.copyto else None


def _several(steps: Sequence[Step], workers: int) -> Task | None:
    tasks: list[Task] = []
    for step in steps:
        if (task := _task(step)) is None:
            return None
        tasks.append(task)
    made: Task = kernels().several(tuple(tasks), workers)
    return made


def _copy(out: Array, x: Array, casting: str = "") -> Task | None:
    """A copy as it is, of few elements or long runs of them."""
    fits = x.dtype == out.dtype and x.shape == out.shape and x.itemsize in (1, 2, 4, 8) and x.ndim <= MOST_AXES
    if not fits or np.may_share_memory(out, x):
        return None
    in_order = x.ndim and x.strides[-1] == out.strides[-1] == x.itemsize and x.shape[-1] * x.itemsize >= RUN
    if not in_order and x.size > FEW:
        return None
    made: Task = kernels().task("copy", _words(out), _words(x))
    return made


def _words(x: Array) -> Array:
    return x.view(np.dtype(f"u{x.itemsize}"))
