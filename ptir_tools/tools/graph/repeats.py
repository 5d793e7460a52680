"""Repeated runs, such as the layers of a model, and the name spaces of ops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

from ptir_tools.core.ir import Element, Literal, Op, Operand, Region, Value
from ptir_tools.core.records import NamedTuple

_LEAST = 4  # ops in a box; one of fewer is not easier to read
_TRIED = 16  # lengths
Path = tuple[str, ...]


class Run(NamedTuple):
    """`times` equal runs of `length` items each, the first from item `start` on."""

    start: int
    length: int
    times: int


class Space(NamedTuple):
    """Consecutive ops of the name space `title`, and smaller name spaces in it."""

    title: str
    items: list[Op | Space]

    @property
    def size(self) -> int:
        """The number of ops in it."""
        return sum(x.size if isinstance(x, Space) else 1 for x in self.items)


def spaces(ops: Sequence[Op]) -> list[Op | Space]:
    """`ops`, those of a name space in a box. An op is in the name space of the weights that it reads (`h0.attn` of
    `h0.attn.bias`), else in its own. One that has neither is where the ops before and after it are."""
    paths = [_path(op) for op in ops]
    after: list[Path] = []
    nearest: Path = ()
    for path in reversed(paths):
        nearest = nearest if path is None else path
        after.append(nearest)
    known: list[Path] = []
    nearest = ()
    for path, later in zip(paths, reversed(after), strict=True):
        nearest = nearest if path is None else path
        known.append(_common(nearest, later) if path is None else path)
    return _boxes(list(zip(ops, known, strict=True)), 0)


def _boxes(ops: Sequence[tuple[Op, Path]], depth: int) -> list[Op | Space]:
    found: list[Op | Space] = []
    start = 0
    for k in range(1, len(ops) + 1):
        head = ops[start][1][: depth + 1]
        if k < len(ops) and ops[k][1][: depth + 1] == head:
            continue
        part = ops[start:k]
        if len(head) <= depth or len(part) < _LEAST:
            found += [op for op, _ in part]
        elif len(inner := _boxes(part, depth + 1)) == 1 and isinstance(inner[0], Space):
            found.append(inner[0])  # one box in a box
        else:
            found.append(Space(".".join(head), inner))
        start = k
    return found


def _path(op: Op) -> Path | None:
    names = [x.name for x in op.values() if x.op is None or x.op.defn.is_constant]
    for name in [*(names if not op.defn.is_constant else ()), *(v.name for v in op.results)]:
        if len(path := tuple(name.replace("/", ".").split("."))) > 1 and all(path):
            return path[:-1]
    return None


def _common(a: Path, b: Path) -> Path:
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return a[:n]


def repeats(items: Sequence[Op | Space]) -> list[Run]:
    """The runs of `items`, in order; no two overlap. Those that cover most items are chosen first. Ops are equal if name,
    attributes and types are; the values of constants may differ. Boxes are equal if their ops are."""
    numbers: dict[Hashable, int] = {}
    signs = [numbers.setdefault(_sign(x), len(numbers)) for x in items]
    big = [isinstance(x, Space) for x in items]
    chosen: list[Run] = []
    taken = bytearray(len(signs))
    for run in sorted(_candidates(signs, big), key=lambda r: (-r.length * r.times, r.length)):
        end = run.start + run.length * run.times
        if not any(taken[run.start : end]):
            taken[run.start : end] = b"\1" * (end - run.start)
            chosen.append(run)
    return sorted(chosen)


def _sign(x: Op | Space) -> Hashable:
    """Equal for equal items."""
    if isinstance(x, Space):
        return tuple(map(_sign, x.items))
    attrs = tuple(v.type if isinstance(v, Literal) else repr(v) for v in x.attrs)
    operands = tuple(v.type if isinstance(v, Literal | Value) else v.index for v in x.operands)
    return (x.defn.name, attrs, operands, tuple(v.type for v in x.results), tuple(map(_shape, x.regions)))


def _shape(region: Region) -> Hashable:
    return id(region) if region.isolated else tuple((op.defn.name, tuple(map(_shape, op.regions))) for op in region.body)


def _candidates(signs: Sequence[int], big: Sequence[bool]) -> list[Run]:
    """The longest runs of each likely length. A length is likely if many items equal the one at that distance before them: a box,
    or several ops."""
    last: dict[tuple[int, ...], int] = {}
    distances: Counter[int] = Counter()
    for k in range(len(signs)):
        window = (signs[k],) if big[k] else tuple(signs[k : k + _LEAST])
        if not big[k] and len(window) < _LEAST:
            continue
        if (before := last.get(window)) is not None and k - before >= len(window):
            distances[k - before] += 1
        last[window] = k
    return [run for length, _ in distances.most_common(_TRIED) for run in _of_length(signs, length)]


def _of_length(signs: Sequence[int], length: int) -> list[Run]:
    runs = []
    start = equal = 0
    for k in range(length, len(signs) + 1):
        if k < len(signs) and signs[k] == signs[k - length]:
            equal += 1
            continue
        if equal >= length:
            runs.append(Run(start, length, equal // length + 1))
        start, equal = k - length + 1, 0
    return runs


class Numbers:
    """Numbers of ops that are equal if they compute the same from the same inputs, whatever the names of values. One object
    numbers several programs."""

    def __init__(self) -> None:
        self.known: dict[Hashable, int] = {}
        self.values: dict[Value, int] = {}

    def __call__(self, op: Op) -> int:
        """The number of `op`; those of its operands are asked before."""
        regions = tuple((r.name if r.isolated else id(r)) for r in op.regions)
        key = (
            op.defn.name,
            op.defn.key(op.attrs) if not op.defn.is_constant else _value(op),
            *map(self._of, op.operands),
            regions,
        )
        number = self.known.setdefault(key, len(self.known))
        for k, v in enumerate(op.results):
            self.values[v] = self.known.setdefault((number, k), len(self.known))
        return number

    def _of(self, x: Operand) -> Hashable:
        if isinstance(x, Literal):
            return (x.type, x.splat, x.payload if (x.size or 0) <= 64 else hash(x.payload))
        if isinstance(x, Element):
            return (self._of(x.value), x.index)
        return self.values.get(x, x.name)


def _value(op: Op) -> Hashable:
    return tuple((x.type, x.splat, hash(x.payload)) if isinstance(x, Literal) else repr(x) for x in op.attrs)
