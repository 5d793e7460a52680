"""Control flow over prepared blocks: values are copied into a region's parameters, and its results are copied out.

Carried values of a loop are in the arrays of its results, which are also the parameters of its regions.
"""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.core.arrays import Array
from ptir_tools.core.evaluate import Data
from ptir_tools.core.ir import Op
from ptir_tools.core.lazy import np
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.core.types import flatten
from ptir_tools.engines.numpy.steps import Builder, Running, Runs, Step, Workshop


def copy_all(targets: Sequence[Array], sources: Sequence[Array]) -> None:
    """Copy each source to its target, as if all at once. Targets do not overlap."""
    pairs = [(t, s) for t, s in zip(targets, sources, strict=True) if not is_same(t, s)]
    if len(pairs) > 1 and any(np.may_share_memory(t, s) for t, _ in pairs for _, s in pairs):
        pairs = [(t, s.copy()) for t, s in pairs]
    for target, source in pairs:
        np.copyto(target, source)


def is_same(x: Array, y: Array) -> bool:
    """Whether two arrays have the same elements in memory."""
    if x is y:
        return True
    return x.dtype == y.dtype and x.shape == y.shape and x.strides == y.strides and x.ctypes.data == y.ctypes.data


def _cond(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    when, otherwise = shop.frames(op)
    return [(choose, (ins[0], list(flatten(tuple(ins[1:]))), when, otherwise, outs))]


def choose(pred: Array, arguments: Sequence[Array], when: Runs, otherwise: Runs, outs: Sequence[Array]) -> None:
    """Run the block that the predicate selects, on copies of the arguments."""
    frame = when if pred.item() else otherwise
    copy_all(frame.parameters, arguments)
    frame.run()
    copy_all(outs, frame.results)


def _while(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    test, body = shop.frames(op, outs)
    return [(loop, (list(flatten(tuple(ins))), test, body, outs, shop.running))]


def loop(carry: Sequence[Array], test: Runs, body: Runs, outs: Sequence[Array], running: Running) -> None:
    """Run the blocks of a while loop. Raises LimitExceeded."""
    context = running.context
    outer, limit = context.indices, context.limits.iterations
    flag, *kept = test.results
    copy_all(outs, carry)
    try:
        for step in range(limit + 1):
            context.indices = (*outer, step)
            test.run()
            again = flag.item()  # before the body overwrites it: it may be a carried value
            copy_all(outs, kept)
            if not again:
                return
            body.run()
            copy_all(outs, body.results)
    finally:
        context.indices = outer
    exceeded(limit)


def exceeded(limit: int) -> None:
    """Raise LimitExceeded: a while loop ran `limit` times."""
    raise LimitExceeded(f"a while loop ran {limit} times", "--max-iterations")


def _scan(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    count = op.attr("carry_count")
    carries, inputs = list(flatten(tuple(ins[:count]))), list(ins[count:])
    (body,) = shop.frames(op, outs[: len(carries)])
    return [(walk, (carries, inputs, body, outs, shop.running))]


def walk(carry: Sequence[Array], inputs: Sequence[Array], body: Runs, outs: Sequence[Array], running: Running) -> None:
    """Run the block of a scan for each row of the inputs."""
    context = running.context
    outer, n = context.indices, len(carry)
    kept, stacked = body.parameters[:n], body.parameters[n:]
    copy_all(kept, carry)
    try:
        for step in range(inputs[0].shape[0]):
            context.indices = (*outer, step)
            for target, x in zip(stacked, inputs, strict=True):
                np.copyto(target, x[step])
            body.run()
            for out, row in zip(outs[n:], body.results[n:], strict=True):
                out[step] = row
            copy_all(kept, body.results[:n])
    finally:
        context.indices = outer


BUILDERS: dict[str, Builder] = {"branch": _cond, "while": _while, "scan": _scan}
