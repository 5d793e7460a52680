"""Samples of the inputs of a program, and what its values are on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from ptir_tools.core import arrayfiles
from ptir_tools.core.arrays import Array, widened
from ptir_tools.core.diagnostics import UsageError, unknown_name
from ptir_tools.core.dialect import Program, clone
from ptir_tools.core.ir import Value, result_names
from ptir_tools.core.lazy import np
from ptir_tools.core.types import TensorType
from ptir_tools.dialects.ptir.quantization.steps import Spread
from ptir_tools.rewrite.context import Ready, Run

Arrays = dict[str, Array]


def load(path: str, program: Program) -> list[Arrays]:
    """The samples of a .npz or .safetensors file: an array for each input, with one more axis in front, that of the samples.

    Raises UsageError for arrays that do not fit the inputs, OSError for a file that cannot be read."""
    given, main = arrayfiles.load_all(path), program.main
    inputs = dict(zip(main.attrs.get("input_names") or [p.name for p in main.params], main.params, strict=True))
    for name in given:
        if name not in inputs:
            raise unknown_name("input", name, inputs, f" for the array in {path}")
    if missing := [name for name in inputs if name not in given]:
        raise UsageError(f"{path} has no samples of `{missing[0]}`", f"one array per input: {', '.join(inputs)}")
    arrays = {name: _fitting(path, name, x, given[name]) for name, x in inputs.items()}
    counts = {name: len(a) for name, a in arrays.items()}
    if len(set(counts.values())) > 1:
        raise UsageError(f"{path} has {', '.join(f'{n} samples of `{name}`' for name, n in counts.items())}")
    count = next(iter(counts.values()), 0)
    if count < 2:
        raise UsageError(f"{path} has {count} samples: at least 2 are needed, of which the last quarter is held out")
    return [{name: a[k] for name, a in arrays.items()} for k in range(count)]


def _fitting(path: str, name: str, x: Value, array: Array) -> Array:
    """The samples of `x` in its dtype. Raises UsageError."""
    t = x.type
    if not isinstance(t, TensorType):
        raise UsageError(f"input `{name}` is {t}: quantization takes tensors")
    try:
        result = arrayfiles.as_dtype(array, t.dtype)
    except ValueError as bad:
        raise UsageError(f"input `{name}` is {t}, which cannot hold {bad}") from None
    if result is None:
        raise UsageError(f"input `{name}` is {t}, its samples in {path} are of {array.dtype}")
    fits = array.ndim == t.rank + 1 and all(
        not isinstance(d, int) or d == n for d, n in zip(t.shape, array.shape[1:], strict=True)
    )
    if not fits:
        help = "each array has one more axis in front, that of the samples"
        raise UsageError(f"input `{name}` is {t}, its samples in {path} have the shape {list(array.shape)}", help)
    return result


def held_out(samples: Sequence[Arrays]) -> tuple[Sequence[Arrays], Sequence[Arrays]]:
    """Those from which ranges are taken, and the last quarter, on which errors are measured."""
    count = max(len(samples) // 4, 1)
    return samples[:-count], samples[-count:]


class Watch:
    """How the numbers of values of the entry are spread on the samples. Each value has the axis of its channels."""

    def __init__(self, program: Program, values: Mapping[Value, int | None], samples: Sequence[Arrays], ready: Ready) -> None:
        self.found, self.samples = {v: Spread(axis) for v, axis in values.items()}, samples
        probe = clone(program)
        copies = dict(zip(_defined(program), _defined(probe), strict=True))
        probe.main.results = [copies[v] for v in values]
        probe.main.result_types = [v.type for v in values]
        probe.main.attrs.pop("output_names", None)
        probe.main.annotations.clear()
        self.run, self.names = ready(probe), result_names(probe.main)

    def look(self, take: Callable[[Spread, Array], None]) -> None:
        """Run the samples; `take` gets each value."""
        for sample in self.samples if self.found else ():
            outputs = self.run(sample)
            for name, spread in zip(self.names, self.found.values(), strict=True):
                take(spread, outputs[name])


def _defined(program: Program) -> Iterator[Value]:
    """The values of the entry that are not in regions, in order."""
    main = program.main
    yield from main.params
    for op in main.body:
        yield from op.results


def errors(wanted: Sequence[Mapping[str, Array]], got: Sequence[Mapping[str, Array]]) -> dict[str, float]:
    """The relative error of each output over several samples: the norm of the differences by the norm of the output. Of integers
    it is the share of elements that differ."""
    names = zip(wanted[0], got[0], strict=True)
    return {name: _error([w[name] for w in wanted], [g[other] for g in got]) for name, other in names}


def _error(wanted: Sequence[Array], got: Sequence[Array]) -> float:
    x, y = (np.concatenate([widened(a).reshape(-1) for a in side]) for side in (wanted, got))
    if x.dtype.kind != "f":
        return float(np.mean(x != y)) if x.size else 0.0
    x, y = x.astype(np.float64), y.astype(np.float64)
    gap = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, x - y)
    size = float(np.sqrt(np.square(x).sum()))
    off = float(np.sqrt(np.square(gap).sum()))
    return off / size if size else float(off > 0)


def outputs(run: Run, samples: Sequence[Arrays], more: Mapping[str, Array] | None = None) -> list[dict[str, Array]]:
    """The outputs on each of the samples. `more` are other inputs."""
    return [{name: x.copy() for name, x in run({**sample, **(more or {})}).items()} for sample in samples]
