"""Comparison of outputs with those of another engine, or with the arrays of a file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ptir_tools.core import arrayfiles, arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.diagnostics import UsageError, unknown_name
from ptir_tools.core.dialect import Program, Runner, clone
from ptir_tools.core.ir import Op, Value, result_names
from ptir_tools.core.lazy import lazy, np
from ptir_tools.core.limits import require_memory, using
from ptir_tools.core.records import NamedTuple, replace
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.types import TensorType, Type
from ptir_tools.dialects import FORMATS
from ptir_tools.engines import RunOptions, run
from ptir_tools.engines.compiled import Compiled
from ptir_tools.engines.inputs import random_inputs
from ptir_tools.engines.numpy import Bound
from ptir_tools.engines.options import PEERS, SPREADS
from ptir_tools.engines.signature import order, signature

if TYPE_CHECKING:
    from ptir_tools.bridges.onnx import runtime
    from ptir_tools.engines import compare
else:
    runtime = lazy("ptir_tools.bridges.onnx.runtime")
    compare = lazy("ptir_tools.engines.compare")


def across_engines(
    program: Program, inputs: Mapping[str, Array], outputs: Mapping[str, Array], other: str, options: RunOptions
) -> tuple[list[compare.Divergence], compare.Verdict]:
    """The divergences of another engine or peer beyond the computed bounds, and the verdict. Both are compared with the
    reference.
    """
    expected, tolerances = compare.reference_outputs(program, inputs, options)
    verdict = compare.Verdict()
    verdict.count(expected, tolerances)
    result = verdict.compared(expected, outputs, tolerances)
    if other != "reference" and not result:
        if other in PEERS:
            result = verdict.compared(expected, runtime.outputs(program, inputs), compare.for_peer(expected, tolerances))
        else:
            result = verdict.compared(expected, run(program, inputs, options.on(other)), tolerances)
    return result, verdict


def judge(program: Program) -> tuple[str, Runner] | None:
    """The engine of the project whose file `program` was read from, and a function that runs it there; None where there is no
    such file, or the engine is not installed."""
    form = FORMATS.get(program.source.form) if program.source is not None else None
    if form is None or form.peer is None or not runtime.is_installed():
        return None
    return runtime.NAME, runtime.ready(program, plain=True)


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


class Differing(NamedTuple):
    """The first value that differs, its op, and the engine or peer that computed it."""

    divergence: compare.Divergence
    op: Op
    engine: str


def first_diverging(program: Program, inputs: Mapping[str, Array], other: str, options: RunOptions) -> Differing | None:
    """The first value of the entry on which the engine of `options`, or another engine or peer, differs beyond the bound.

    An engine with planned steps runs as it is, with its passes and fused ops. The values at the ends of its steps are compared
    with the reference on the program that it ran. Other engines return all values; those that a peer does not name are skipped.
    Raises UsageError for PTO.
    """
    if program.dialect.executor is not None:
        raise UsageError(f"--all-values is not for {program.dialect.name}: its values are not tensors")
    for engine in dict.fromkeys((options.engine, other)):
        if engine == "reference":
            continue
        find = _first_as_written if engine in (SPREADS, *PEERS) else _first_of_steps
        if (found := find(program, inputs, engine, options)) is not None:
            return found
    return None


def _first_of_steps(program: Program, inputs: Mapping[str, Array], engine: str, options: RunOptions) -> Differing | None:
    values: dict[Value, Array] = {}

    def ended(ops: Sequence[Op], start: float, end: float) -> None:
        places = session.call.frame.places if isinstance(session.call, Bound) else {}
        for v in (v for op in ops for v in op.results):
            if (x := places.get((v, ()))) is not None:
                values[v] = x.copy()

    session = Compiled(program, replace(options.on(engine), timer=ended))
    session(inputs)
    ran = session.ran
    wide = clone(ran)
    copies = {
        v: w
        for op, other in zip(ran.main.body, wide.main.body, strict=True)
        for v, w in zip(op.results, other.results, strict=True)
    }
    seen = [v for v in copies if v in values]
    _return_all(wide, [copies[v] for v in seen])
    given = order(signature(program, options.function), inputs)
    expected, tolerances = compare.reference_outputs(wide, given, replace(options, function=None))
    for v, (name, x) in zip(seen, expected.items(), strict=True):
        divergence = compare.diverging(v.name, x, values[v], tolerances.get(name, compare.EXACT))
        if divergence is not None and v.op is not None:
            return Differing(divergence, v.op, engine)
    return None


def _first_as_written(program: Program, inputs: Mapping[str, Array], engine: str, options: RunOptions) -> Differing | None:
    wide = clone(program)
    results = [op for op in wide.main.body if len(op.results) == 1 and isinstance(op.result.type, TensorType)]
    names = _return_all(wide, [op.result for op in results])
    expected, tolerances = compare.reference_outputs(wide, inputs, options)
    if engine in PEERS:
        values, tolerances = runtime.values(program, wide, inputs, names), compare.for_peer(expected, tolerances)
    else:
        values = run(wide, inputs, options.on(engine))
    for op, name in zip(results, names, strict=True):
        if name in values and name in expected:
            divergence = compare.diverging(name, expected[name], values[name], tolerances.get(name, compare.EXACT))
            if divergence is not None:
                return Differing(divergence, op, engine)
    return None


def _return_all(program: Program, values: Sequence[Value]) -> list[str]:
    """Make `values` the results of the entry, in place. Their names."""
    main = program.main
    main.results, main.result_types = list(values), [v.type for v in values]
    main.attrs.pop("output_names", None)
    return result_names(main)


def only_fused(program: Program, inputs: Mapping[str, Array], engine: str, options: RunOptions) -> bool:
    """Whether `engine` gives outputs within the bounds when it runs op by op. A peer cannot be made to."""
    if engine in PEERS:
        return False
    options = options.on(engine)
    expected, tolerances = compare.reference_outputs(program, inputs, options)
    return not compare.compare(expected, run(program, inputs, replace(options, observe=lambda op, results: None)), tolerances)


def observed_as_run(
    program: Program, inputs: Mapping[str, Array], plain: Mapping[str, Array], observed: Mapping[str, Array], options: RunOptions
) -> list[compare.Divergence]:
    """The outputs of a `plain` run that differ from those of an `observed` one, in which nothing is fused, beyond the bounds.
    The bounds are computed only if the outputs do not agree in half of their digits."""
    if all(_alike(a, b) for a, b in zip(plain.values(), observed.values(), strict=True)):
        return []
    expected, tolerances = compare.reference_outputs(program, inputs, replace(options, observe=None))
    return compare.compare(expected, plain, tolerances)


def _alike(a: Array, b: Array) -> bool:
    x, y = arrays.widened(a), arrays.widened(b)
    if x.dtype.kind not in "fc":
        return np.array_equal(x, y)
    size = np.max(np.abs(x), where=np.isfinite(x), initial=0)
    digits = np.sqrt(float(np.finfo(a.dtype).eps) if a.dtype.kind in "fc" else 2.0**-7)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    with np.errstate(all="ignore"):
        return bool(np.all(same | (np.abs(x - y) <= digits * size)))


def against_file(
    path: str,
    outputs: Mapping[str, Array],
    tolerance: compare.Tolerance,
    verdict: compare.Verdict,
    *,
    by_position: bool = False,
) -> list[compare.Divergence]:
    """The divergences of the outputs from the arrays of a file, matched by name, or else by position, when there are as many. A
    .npy is matched with a single output. They are added to `verdict`."""

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
    wanted = {name: _like(x, outputs[name]) for name, x in expected.items()}
    tolerances = dict.fromkeys(wanted, tolerance)
    verdict.count(wanted, tolerances)
    return verdict.compared(wanted, {name: arrayfiles.widened(outputs[name]) for name in wanted}, tolerances)


def _like(expected: Array, actual: Array) -> Array:
    """`expected` for a comparison with `actual`: dtypes that .npz widens are widened, floats of another precision are
    unchanged."""
    wide = arrayfiles.widened(actual).dtype
    both_float = expected.dtype.kind in "f" and wide.kind == "f"
    return expected.astype(wide) if both_float and expected.dtype != wide else arrayfiles.widened(expected)
