"""Comparison of outputs with those of another engine, or with the arrays of a file."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ptir_tools.core import arrayfiles, arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.diagnostics import UsageError, unknown_name
from ptir_tools.core.dialect import Program, clone
from ptir_tools.core.ir import Op, result_names
from ptir_tools.core.lazy import lazy, np
from ptir_tools.core.limits import using
from ptir_tools.core.records import replace
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.types import TensorType, Type
from ptir_tools.engines import RunOptions, run
from ptir_tools.engines.inputs import random_inputs
from ptir_tools.engines.memory import require_memory
from ptir_tools.engines.options import PEERS
from ptir_tools.engines.signature import signature

if TYPE_CHECKING:
    from ptir_tools.bridges.onnx import runtime
    from ptir_tools.engines import compare
else:
    runtime = lazy("ptir_tools.bridges.onnx.runtime")
    compare = lazy("ptir_tools.engines.compare")


def across_engines(
    program: Program, inputs: Mapping[str, Array], outputs: Mapping[str, Array], other: str, options: RunOptions
) -> tuple[list[compare.Divergence], dict[str, int]]:
    """The divergences of another engine or peer beyond the computed bounds, and the number of elements without a bound. Both are
    compared with the reference.
    """
    expected, tolerances = compare.reference_outputs(program, inputs, options)
    result = compare.compare(expected, outputs, tolerances)
    if other != "reference" and not result:
        if other in PEERS:
            result = compare.compare(expected, runtime.outputs(program, inputs), compare.for_peer(expected, tolerances))
        else:
            result = compare.compare(expected, run(program, inputs, options.on(other)), tolerances)
    return result, compare.unbounded(expected, tolerances)


def moved(before: Program, after: Program, options: RunOptions) -> list[str]:
    """The distance of each output of `after` from that of `before` on random inputs, a line for each; free symbols get small
    sizes.

    Raises as `engines.run` does.
    """
    options = replace(options, bindings={**options.bindings, **compare.small_sizes(before, options.bindings)})
    with using(options.limits):
        inputs = random_inputs(before, options.seed, {}, options.function, options.bindings)
    wanted = run(before, inputs, options)
    dtypes = {p.name: p.type for p in signature(after, options.function)}
    given = {name: _as(x, dtypes.get(name)) for name, x in inputs.items()}
    lines = []
    for (name, x), y in zip(wanted.items(), run(after, given, options).values(), strict=True):
        a, b = arrays.widened(x), arrays.widened(y)
        if a.dtype.kind != "f":
            lines.append(f"{name}: {int(np.count_nonzero(a != b))} of {a.size} elements differ")
            continue
        gap = np.abs(np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0, a - b))
        size = float(np.max(np.abs(a), where=np.isfinite(a), initial=0))
        lines.append(f"{name}: off by {float(gap.max(initial=0)):.3g} at most, where the largest value is {size:.3g}")
    return lines


def _as(x: Array, t: Type | None) -> Array:
    return arrays.narrow(arrays.widen(x), t.dtype) if isinstance(t, TensorType) and x.dtype.kind != "b" else x


def first_diverging(
    program: Program, inputs: Mapping[str, Array], other: str, options: RunOptions
) -> tuple[compare.Divergence, Op] | None:
    """The first value of the entry on which another engine or peer, or the engine of `options`, differs beyond the bound, and its
    op. Values that a peer does not name are skipped. Raises UsageError for PTO."""
    if program.dialect.executor is not None:
        raise UsageError(f"--all-values is not for {program.dialect.name}: its values are not tensors")
    wide = clone(program)
    results = [op for op in wide.main.body if len(op.results) == 1 and isinstance(op.result.type, TensorType)]
    wide.main.results = [op.result for op in results]
    wide.main.result_types = [op.result.type for op in results]
    wide.main.attrs.pop("output_names", None)
    names = result_names(wide.main)
    expected, tolerances = compare.reference_outputs(wide, inputs, options)
    sides = [(run(wide, inputs, options), tolerances)] if options.engine != "reference" else []
    if other in PEERS:
        sides.append((runtime.values(program, wide, inputs, names), compare.for_peer(expected, tolerances)))
    elif other != "reference":
        sides.append((run(wide, inputs, options.on(other)), tolerances))
    for op, name in zip(results, names, strict=True):
        for side, allowed in sides:
            if name in side and name in expected:
                divergence = compare.diverging(name, expected[name], side[name], allowed.get(name, compare.EXACT))
                if divergence is not None:
                    return divergence, op
    return None


def against_file(
    path: str, outputs: Mapping[str, Array], tolerance: compare.Tolerance, *, by_position: bool = False
) -> list[compare.Divergence]:
    """The divergences of the outputs from the arrays of a file, matched by name, or else by position, when there are as many. A
    .npy is matched with a single output."""

    def fits(name: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
        if name and name not in outputs and not by_position:
            raise unknown_name("output", name, outputs)
        require_memory(math.prod(shape) * dtype.itemsize)

    if path.endswith(".npy") and len(outputs) == 1:
        expected = {next(iter(outputs)): arrayfiles.load(path, fits=fits)}
    else:
        expected = arrayfiles.load_all(path, fits)
    if by_position and len(expected) == len(outputs):
        expected = dict(zip(outputs, expected.values(), strict=True))
    for name in expected:
        if name not in outputs:
            raise unknown_name("output", name, outputs)
    divergence = (
        compare.diverging(n, _like(expected[n], outputs[n]), arrayfiles.widened(outputs[n]), tolerance) for n in expected
    )
    return [d for d in divergence if d is not None]


def _like(expected: Array, actual: Array) -> Array:
    """`expected` for a comparison with `actual`: dtypes that .npz widens are widened, floats of another precision are
    unchanged."""
    wide = arrayfiles.widened(actual).dtype
    both_float = expected.dtype.kind in "f" and wide.kind == "f"
    return expected.astype(wide) if both_float and expected.dtype != wide else arrayfiles.widened(expected)
