"""Two programs, value by value: which values correspond, and how far they are apart on the same inputs (command-line contract:
`diff --run`)."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping, Sequence

from ptir_tools import convert
from ptir_tools.core import arrayfiles, arrays, errors
from ptir_tools.core.arrays import Array
from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.core.dialect import Program, clone
from ptir_tools.core.dtypes import DType
from ptir_tools.core.ir import Function, Literal, Op, Operand, Region, Value, operand_type
from ptir_tools.core.lazy import np, regex
from ptir_tools.core.records import NamedTuple, dataclass, field, replace
from ptir_tools.core.types import Sym, TensorType, Type
from ptir_tools.dialects import FORMATS
from ptir_tools.engines import RunOptions, compare, run
from ptir_tools.engines.signature import signature
from ptir_tools.tools.notebook import html_table

_NUMBER = regex(r"[~a-z]?[0-9]+")  # the name of a value that a reader or a pass has named
Class = int  # values of one class are the same computation


class Pair(NamedTuple):
    """A value of the first program and the corresponding one of the second. `by`: what they have in common, name or structure."""

    first: Value
    second: Value
    by: str


class Label(NamedTuple):
    """The names of two corresponding values, what they have in common, and the op that computes the first, if it is known."""

    name: str
    other: str
    by: str = "name"
    op: Op | None = None


@dataclass(slots=True)
class Row:
    """Two corresponding values in a run. `error` is the largest absolute error, `size` the largest magnitude of the value.
    `near` is the element whose error is the largest part of its bound, None if all elements with a bound are equal. `differs`
    says why they are not equal within the bound. `open` elements have no bound. `growth` is the relative error as a multiple of
    that of the values that it is computed from, None if they are equal."""

    label: Label
    error: float
    size: float
    near: compare.Nearest | None
    differs: compare.Divergence | None
    open: int
    growth: float | None = None

    @property
    def relative(self) -> float:
        """The largest error as a part of the largest element."""
        if not self.error:
            return 0.0
        return self.error / self.size if self.size else math.inf

    @property
    def part(self) -> float:
        """The error as a part of its bound."""
        return self.near.part if self.near is not None else 0.0

    def record(self) -> dict[str, object]:
        """The row for JSON, in which an infinite number is null."""
        near = self.near
        numbers = {"error": self.error, "relative": self.relative, "growth": self.growth}
        numbers |= {"worst_error": near.error, "bound": near.bound} if near is not None else {"worst_error": 0.0, "bound": None}
        return {
            "name": self.label.name,
            "other": self.label.other,
            "by": self.label.by,
            "op": None if self.label.op is None else self.label.op.defn.short,
            "agrees": self.differs is None,
            **{k: x if x is None or math.isfinite(x) else None for k, x in numbers.items()},
            "index": None if near is None else list(near.index),
            "unbounded": self.open,
        }


@dataclass(slots=True)
class Report:
    """The values of two programs in one run, in the order of the first. `left` are the numbers of values of each program that
    correspond to none of the other."""

    rows: list[Row] = field(default_factory=list)
    left: tuple[int, int] = (0, 0)
    verdict: compare.Verdict = field(default_factory=lambda: compare.Verdict())

    @property
    def first(self) -> Row | None:
        """The first value that differs."""
        return next((row for row in self.rows if row.differs is not None), None)

    @property
    def worst(self) -> Row | None:
        """The value whose error is the largest part of its bound."""
        unequal = [row for row in self.rows if row.part]
        return max(unequal, key=lambda row: row.part, default=None)

    def compare(self, label: Label, expected: Array, actual: Array, tolerance: compare.Tolerance) -> Row:
        """Add a row for two arrays, and count them in the verdict."""
        a, b = (x.astype(np.int64) if x.dtype.kind in "iu" else x for x in map(arrays.widen, (expected, actual)))
        row = Row(label, math.inf, 0.0, compare.nearest(label.name, a, b, tolerance), None, 0)
        row.differs = compare.diverging(label.name, a, b, tolerance)
        if a.dtype == b.dtype and a.shape == b.shape:
            with np.errstate(all="ignore"):
                c, d = (x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) for x in (a, b))
                row.error, size = float(np.max(errors.distances(c, d), initial=0.0)), np.abs(c)
            row.size = float(np.max(size, where=np.isfinite(size), initial=0.0))
        row.open = compare.unbounded({label.name: a}, {label.name: tolerance}).get(label.name, 0)
        self.rows.append(row)
        self.verdict.count({label.name: a}, {label.name: tolerance})
        self.verdict.failed |= row.differs is not None
        if row.near is not None and (self.verdict.nearest is None or row.near.part > self.verdict.nearest.part):
            self.verdict.nearest = row.near
        return row

    def __repr__(self) -> str:
        return f"<{self.verdict}>"

    def _repr_html_(self) -> str:
        """The verdict and a table of the values, for a notebook."""
        rows = [
            (row.label.name, f"{row.error:.3g}", f"{row.relative:.3g}", "-" if row.near is None else f"{row.near.bound:.3g}",
             "differs" if row.differs is not None else "no bound" if row.open else "")
            for row in self.rows
        ]  # fmt: skip
        return f"<p>{html.escape(str(self.verdict))}</p>" + html_table(("value", "error", "relative", "bound", ""), rows)

    def record(self) -> dict[str, object]:
        """The report for JSON."""
        first, worst = self.first, self.worst
        return {
            "agree": not self.verdict.failed,
            "verdict": str(self.verdict),
            "first": None if first is None else first.label.name,
            "worst": None if worst is None else worst.label.name,
            "unmatched": list(self.left),
            "values": [row.record() for row in self.rows],
        }


def values(
    first: Program,
    second: Program,
    inputs: Mapping[str, Array],
    given: Mapping[str, Array],
    options: RunOptions,
    within: compare.Tolerance | None = None,
    named: bool = True,
) -> Report:
    """Run both programs on the reference engine and compare the values of their entries, on `inputs` and `given`. They are of one
    dialect, whose values are tensors. `within` replaces the computed bounds. `named`: names mean something.

    Raises as `engines.run` does.
    """
    found = pairs(first.main, second.main, named)
    a, b = _returning(first, [p.first for p in found]), _returning(second, [p.second for p in found])
    precisions = compare.Precisions.of(first, second)
    tolerances: Sequence[compare.Tolerance]
    if within is not None:
        expected, actual = (run(x, y, options.on("reference")) for x, y in ((a, inputs), (b, given)))
        tolerances = [within] * len(found)
    else:
        expected, known = compare.reference_outputs(a, inputs, options, precisions.before)
        tolerances = [known[name] for name in expected]
        if precisions.shared:
            actual, more = compare.reference_outputs(b, given, options, precisions.after)
            tolerances = [t + more[name] for t, name in zip(tolerances, actual, strict=True)]
        else:
            actual = run(b, given, options.on("reference"))
    report = Report(left=(_left(first.main, {p.first for p in found}), _left(second.main, {p.second for p in found})))
    for p, x, y, tolerance in zip(found, expected.values(), actual.values(), tolerances, strict=True):
        report.compare(Label(p.first.name, p.second.name, p.by, p.first.op), x, y, tolerance)
    _grow(first.main, dict(zip([p.first for p in found], report.rows, strict=True)))
    return report


def of_check(
    first: Program, second: Program, check: compare.Check, options: RunOptions, within: compare.Tolerance | None = None
) -> tuple[Program, Program, Report]:
    """The values of two programs on the inputs of a check, and the programs in PTIR, to which the values belong.

    Raises UsageError for a program that has no form in PTIR, and as `engines.run` does.
    """
    a, b = _in_hub(first), _in_hub(second)
    named = all(FORMATS[p.format].named for p in (first, second) if p.format)
    given = compare.arguments(a, check.inputs, {}, check.sizes, mixed=True)
    other = compare.arguments(b, check.inputs_after, {}, check.sizes, mixed=True)
    options = replace(options, bindings={**options.bindings, **check.sizes})
    return a, b, values(a, b, given, other, options, within, named)


def _in_hub(program: Program) -> Program:
    """The program in PTIR. Raises UsageError for one whose values are no tensors, or that cannot be translated."""
    made = None if program.dialect.executor is not None else convert.translate(program, convert.HUB, Diagnostics())
    if made is None:
        raise UsageError("only results are compared: one program has no form in PTIR, whose values are compared")
    return made


def with_file(
    program: Program, path: str, options: RunOptions, within: compare.Tolerance | None = None, first: bool = True
) -> Report:
    """Run the program on the inputs in a file that `run --save-values` wrote, and compare its values with those in the file, by
    name. `first`: the program is the first of the two.

    Raises UsageError for a file without the inputs, and as `engines.run` does.
    """
    archive = arrayfiles.Archive(path)
    if missing := [p.name for p in signature(program) if p.name not in archive.names]:
        raise UsageError(f"{path} has no input `{missing[0]}`: `ptir run --save-values` writes inputs and values")
    found, saved = _saved(program.main, archive)
    inputs = {p.name: _typed(archive.read(p.name), p.type) for p in signature(program)}
    wide = _returning(program, found)
    known = dict[str, compare.Tolerance]()
    if within is None:
        outputs, known = compare.reference_outputs(wide, inputs, options)
    else:
        outputs = run(wide, inputs, options.on("reference"))
    left = _left(program.main, {*found}), len(archive.names) - len(found) - len(inputs)
    report = Report(left=left if first else left[::-1])
    for v, x, (name, y) in zip(found, saved, outputs.items(), strict=True):
        report.compare(Label(v.name, v.name, op=v.op), *((y, x) if first else (x, y)), known[name] if within is None else within)
    _grow(program.main, dict(zip(found, report.rows, strict=True)))
    return report


def _saved(main: Function, archive: arrayfiles.Archive) -> tuple[list[Value], list[Array]]:
    """The values with an array of their name and shape in the file. Names that a reader has given count only where the file
    has all values, since another program has them, too."""
    values = [v for v in _values(main) if isinstance(v.type, TensorType)]
    found = {v: archive.read(v.name) for v in values if v.name in archive.names}
    found = {v: x for v, x in found.items() if isinstance(v.type, TensorType) and x.ndim == v.type.rank and _fits(x, v.type)}
    if len(found) < len(values):
        found = {v: x for v, x in found.items() if not _NUMBER.fullmatch(v.name)}
    return [*found], [*found.values()]


def _fits(x: Array, t: TensorType) -> bool:
    return all(n == d or isinstance(d, Sym) for n, d in zip(x.shape, t.shape, strict=True))


def _typed(x: Array, t: Type) -> Array:
    """An array of a file, in which bf16 and fp8 may be widened, as the type says."""
    return arrays.narrow(arrays.widen(x), t.dtype) if isinstance(t, TensorType) and t.dtype.is_float else x


def of_files(path: str, other: str, within: compare.Tolerance) -> Report:
    """Compare the arrays of two files by name. Raises UsageError, OSError."""
    first, second = arrayfiles.Archive(path), arrayfiles.Archive(other)
    both = [name for name in first.names if name in second.names]
    report = Report(left=(len(first.names) - len(both), len(second.names) - len(both)))
    for name in both:
        report.compare(Label(name, name), first.read(name), second.read(name), within)
    return report


def _returning(program: Program, wanted: Sequence[Value]) -> Program:
    """A copy of `program` whose entry returns the copies of `wanted`."""
    copy = clone(program)
    copies = dict(zip(_values(program.main), _values(copy.main), strict=True))
    main = copy.main
    main.results = [copies[v] for v in wanted]
    main.result_types = [v.type for v in main.results if isinstance(v, Value)]
    main.attrs.pop("output_names", None)
    return copy


def _values(main: Function) -> Iterator[Value]:
    """The tensors that the function computes, in order. Constants are none."""
    return (v for op in main.body if not op.defn.is_constant for v in op.results if isinstance(v.type, TensorType))


def _left(main: Function, found: set[Value]) -> int:
    """The number of values that are not in `found`. Casts between floats count for nothing."""
    return sum(1 for v in _values(main) if v not in found and not (v.op is not None and _is_cast(v.op)))


def _grow(main: Function, known: Mapping[Value, Row]) -> None:
    """Fill in the growth of errors: of each value, compared with the nearest compared values that it is computed from."""
    before = dict[Value, float]()  # the largest relative error that reaches a value
    for op in main.body:
        reached = max((before.get(v, 0.0) for v in op.values()), default=0.0)
        for v in op.results:
            row = known.get(v)
            before[v] = reached if row is None else row.relative
            if row is not None and 0 < reached < math.inf:
                row.growth = row.relative / reached


def pairs(first: Function, second: Function, named: bool = True) -> list[Pair]:
    """The corresponding values of two functions, in the order of the first.

    First are those with the same name. Then those that the same ops compute from corresponding values, and those of the same op
    that the same ops use for corresponding results. Last are values of the same op with the same number as their name, such as
    `v12`, and of any ops in the same place of the same op. Casts between floats count for nothing. Only values of the same shape
    correspond.
    """
    match = _Match(first, second)
    if named:
        match.by_name()
    for _ in range(2):
        match.forward()
        match.backward()
    if named:
        match.by_name(numbers=True)
    match.backward(any_op=True)
    return [Pair(v, *match.found[v]) for v in _values(first) if v in match.found]


class _Match:
    """The values of two functions that correspond so far."""

    def __init__(self, first: Function, second: Function) -> None:
        self.first, self.second = first, second
        self.found = dict[Value, tuple[Value, str]]()
        self.taken = dict[Value, Value]()
        self.classes = dict[object, Class]()
        inputs, others = first.params, second.params
        by_name = {p.name: p for p in others}
        same = by_name.keys() == {p.name for p in inputs}
        self.inputs = [(p, by_name[p.name]) for p in inputs] if same else list(zip(inputs, others, strict=False))
        floats = [d for f in (first, second) for d in _floats(f)]
        self.coarsest = min(floats, key=lambda d: d.precision, default=None)

    def add(self, v: Value, w: Value, by: str) -> bool:
        """Let `v` correspond to `w`, if that is possible and new."""
        computed = all(x.op is not None and not x.op.defn.is_constant for x in (v, w))
        if v in self.found or w in self.taken or not computed or not _alike(v.type, w.type):
            return False
        self.found[v], self.taken[w] = (w, by), v
        return True

    def by_name(self, numbers: bool = False) -> None:
        """Values with the same name, which is no number; or with `numbers` such ones, of the same op."""
        seconds = {w.name: w for w in _values(self.second)}
        for v in _values(self.first):
            w = seconds.get(v.name)
            if w is None or v.op is None or w.op is None:
                continue
            if w.op.defn is v.op.defn if numbers else not _NUMBER.fullmatch(v.name):
                self.add(v, w, "name")

    def forward(self) -> None:
        """Values that the same ops compute from corresponding values."""
        sources, others = dict[Value, Class](), dict[Value, Class]()
        for v, w in self.inputs:
            sources[v] = others[w] = self.new()
        self.number(self.first, sources)
        for w, v in self.taken.items():
            others[w] = sources[v]
        self.number(self.second, others)
        free = dict[Class, list[Value]]()
        for v in _values(self.first):
            if v not in self.found:
                free.setdefault(sources[v], []).append(v)
        for w in _values(self.second):
            if w not in self.taken and (candidates := free.get(others[w])) and self.add(candidates[0], w, "structure"):
                candidates.pop(0)

    def new(self) -> Class:
        """A class of its own."""
        return self.classes.setdefault(object(), len(self.classes))

    def number(self, block: Region, known: dict[Value, Class]) -> tuple[Class, ...]:
        """Number the values of a block in place; the classes of its results. Values in `known` have one."""
        for op in block.body:
            operands = tuple(self.operand(x, known) for x in op.operands)
            if _is_cast(op):
                known.setdefault(op.results[0], operands[0])
                continue
            attrs = tuple(self.attribute(x) for x in op.defn.key(op.attrs))
            regions = tuple(self.region(r) for r in op.regions)
            for k, v in enumerate(op.results):
                key = (op.defn.name, operands, attrs, regions, k, v.type.shape if isinstance(v.type, TensorType) else None)
                known.setdefault(v, self.classes.setdefault(key, len(self.classes)))
        return tuple(self.operand(x, known) for x in block.results)

    def region(self, region: Region) -> tuple[Class, ...]:
        """The classes of a region's results, for parameters known by their position."""
        parameters = {p: self.classes.setdefault(("parameter", k), len(self.classes)) for k, p in enumerate(region.params)}
        return self.number(region, parameters)

    def operand(self, x: Operand, known: Mapping[Value, Class]) -> Class:
        """The class of an operand."""
        if isinstance(x, Value):
            return known[x] if x in known else self.new()
        key = self.attribute(x) if isinstance(x, Literal) else (self.operand(x.value, known), x.index)
        return self.classes.setdefault(key, len(self.classes))

    def attribute(self, x: object) -> object:
        """An attribute without dtypes; floats of a constant in the coarsest dtype of both functions."""
        if isinstance(x, DType):
            return None
        if isinstance(x, TensorType):
            return x.shape
        if not isinstance(x, Literal):
            return x
        if x.is_missing:
            return id(x)
        data = arrays.from_literal(x)
        if x.type.dtype.is_float and self.coarsest is not None:
            data = arrays.narrow(arrays.widen(data), self.coarsest)
        return (x.type.shape, hash(data.tobytes()))

    def backward(self, any_op: bool = False) -> None:
        """Operands of the same ops that compute corresponding values: those of the same op, or of `any_op`."""
        todo = [(v, w) for v, (w, _) in self.found.items()]
        ends = zip(map(_before_casts, self.first.results), map(_before_casts, self.second.results), strict=False)
        todo += [(v, w) for v, w in ends if isinstance(v, Value) and isinstance(w, Value)]
        for v, w in todo:
            self.add(v, w, "structure")
            p, q = v.op, w.op
            if self.found.get(v, (None,))[0] is not w or p is None or q is None or p.defn is not q.defn:
                continue
            operands = [(_before_casts(x), _before_casts(y)) for x, y in zip(p.operands, q.operands, strict=False)]
            both = [(x, y) for x, y in operands if isinstance(x, Value) and isinstance(y, Value)]
            made = {x.op.defn if x.op else None for pair in both for x in pair}
            if p.defn.commutes and len(both) > 1 and (any_op or len(made) == 1):
                continue  # which is which is unknown
            for x, y in both:
                same = x.op is not None and y.op is not None and x.op.defn is y.op.defn
                if (same or any_op) and self.add(x, y, "structure"):
                    todo.append((x, y))


def _floats(f: Function) -> Iterator[DType]:
    types = [v.type for v in f.values()]
    return (t.dtype for t in types if isinstance(t, TensorType) and t.dtype.is_float)


def _is_cast(op: Op) -> bool:
    """Whether an op only converts floats to another float dtype."""
    if len(op.operands) != 1 or not op.defn.is_elementwise or not all(isinstance(x, DType) for x in op.attrs):
        return False
    s, t = operand_type(op.operands[0]), op.results[0].type
    if not isinstance(s, TensorType) or not isinstance(t, TensorType):
        return False
    return s.dtype is not t.dtype and s.dtype.is_float and t.dtype.is_float


def _before_casts(x: Operand) -> Operand:
    while isinstance(x, Value) and x.op is not None and _is_cast(x.op):
        x = x.op.operands[0]
    return x


def _alike(a: Type, b: Type) -> bool:
    """Whether two types can be of corresponding values: tensors with equal extents, where both are numbers."""
    if not isinstance(a, TensorType) or not isinstance(b, TensorType) or a.rank != b.rank:
        return False
    return all(m == n or isinstance(m, Sym) or isinstance(n, Sym) for m, n in zip(a.shape, b.shape, strict=True))
