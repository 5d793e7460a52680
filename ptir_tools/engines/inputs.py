"""Random inputs that satisfy a program: indices in bounds, divisors that are not 0.

The constraints on inputs are propagated backward from the ops that index or divide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ptir_tools.core import arrays, symbols
from ptir_tools.core.arrays import Array
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import DType, Kind
from ptir_tools.core.ir import (
    NOTHING,
    Asked,
    Literal,
    Loop,
    Need,
    Op,
    Operand,
    Region,
    Value,
    leaves_read,
    operand_type,
)
from ptir_tools.core.lazy import ml_dtypes, np
from ptir_tools.core.limits import require_memory
from ptir_tools.core.records import dataclass, field
from ptir_tools.core.types import NumericType, Shape, ShapedType, TensorType, Type, is_memory, leaves
from ptir_tools.core.violations import Violation
from ptir_tools.engines.memory import addressed
from ptir_tools.engines.signature import Port, entry, given_extents, signature

__all__ = ["Port", "random_array", "random_inputs", "signature"]

Needs = dict[tuple[Value, int], Need]


def random_inputs(
    program: Program,
    seed: int = 0,
    given: Mapping[str, Array] | None = None,
    function: str | None = None,
    bindings: Mapping[str, int] | None = None,
    special: bool = False,
) -> dict[str, Array]:
    """An array for every input that `given` leaves out, by name: floats uniform in [-1, 1), i1 fair, integers in [-8, 8)
    (unsigned [0, 16)), indices inside their extent, divisors not 0. With `special`, many elements of the others are the limits of
    their dtype, zeros of both signs, infinities and NaN. An input that is an extent has its value.
    Each other input has its own stream, keyed by `seed` and position. Symbols are bound from `bindings`, the program's `dims` and
    the shapes of `given`.
    Raises Violation("UnboundSymbol") for an extent that stays open, and LimitExceeded when memory would not suffice.
    """
    given = given or {}
    ports = signature(program, function)
    numbers: dict[str, int] = {**program.attrs.get("dims", {}), **(bindings or {})}
    code = program.dialect.codes.extent
    for p in ports:
        if p.name in given and isinstance(p.type, TensorType):
            symbols.unify(p.type, p.type.with_shape(given[p.name].shape), numbers, f"input `{p.name}`", code)
    symbols.infer(program, numbers)
    main = entry(program, function)
    shapes = {x: given[x.name].shape for x in main.params if is_memory(x.type) and x.name in given}
    needs = _needs(main, _Surroundings(program, numbers, shapes))
    types = [symbols.substitute(p.type, symbols.lookup_in(program, numbers)) for p in ports]
    wanted = [(k, p, t, need) for k, (p, t, need) in enumerate(zip(ports, types, needs, strict=True)) if p.name not in given]
    if opened := [(p, s.name) for _, p, t, _ in wanted for s in symbols.mentioned(t)]:
        port, names = opened[0][0], ", ".join(dict.fromkeys(name for _, name in opened))
        way = "give it with --bind NAME=INT"
        raise Violation("UnboundSymbol", f"no value for {names}", help=way, at=f"%{port.name}:", loc=port.loc)
    require_memory(sum(addressed(_dtype(t), _shape(t)) for _, _, t, _ in wanted))
    extents = given_extents(ports, numbers, bindings or ())
    return {
        p.name: extents[p.name] if p.name in extents else random_array(_dtype(t), _shape(t), seed, k, need, special)
        for k, p, t, need in wanted
    }


def _dtype(t: Type) -> DType:
    assert isinstance(t, NumericType)
    return t.dtype


def _shape(t: Type) -> tuple[int, ...]:
    shape: Shape = t.shape if isinstance(t, ShapedType) else ()
    return tuple(d for d in shape if isinstance(d, int))


def random_array(
    dtype: DType,
    shape: tuple[int, ...],
    seed: int,
    position: int,
    need: Need = NOTHING,
    special: bool = False,
) -> Array:
    """A random array of `dtype` and `shape` from the stream (`seed`, `position`) that satisfies `need`; without a need it may
    have `special` elements."""
    stream = np.random.Generator(np.random.Philox(key=np.array([seed % 2**64, position], np.uint64)))
    drawn: Array
    if shape in ((), (len(need.exact),)) and len(need.exact) == np.prod(shape, dtype=int):
        drawn = np.array(need.exact, np.int64).reshape(shape)
    elif need.bounds:
        bounds = need.bounds if shape[-1:] == (len(need.bounds),) else (min(need.bounds),)
        low = need.low if dtype.is_signed else max(need.low, 0)
        drawn = stream.integers(low, np.maximum(np.array(bounds, np.int64), low + 1), shape)
    elif dtype.is_complex:
        drawn = _uniform(stream, shape, dtype, np.dtype(np.float64)) + 1j * _uniform(stream, shape, dtype, np.dtype(np.float64))
    elif dtype.is_float:
        drawn = _uniform(stream, shape, dtype, arrays.numpy_dtype(dtype))
    elif dtype.kind is Kind.BOOL:
        drawn = stream.integers(0, 2, shape)
    else:
        drawn = stream.integers(-8, 8, shape) if dtype.is_signed else stream.integers(0, 16, shape)
    if need.nonzero:
        drawn = np.where(drawn == 0, 1, drawn)
    result = np.asarray(np.asarray(drawn).astype(arrays.numpy_dtype(dtype), copy=False))
    if not special or need != NOTHING or dtype.kind is Kind.BOOL:
        return result
    return np.where(stream.random(shape) < _SPECIAL, stream.choice(_specials(dtype), shape), result)


_SPECIAL = 0.4  # part of the elements that are special


def _specials(dtype: DType) -> Array:
    """The limits of a dtype and numbers next to them, zeros, infinities and NaN."""
    kind = arrays.numpy_dtype(dtype)
    if dtype.is_integer:
        whole = ml_dtypes.iinfo(kind)  # type: ignore[no-untyped-call]
        return np.array([whole.min, whole.max, 0, 1, *([-1] if dtype.is_signed else [])], np.object_).astype(kind)
    part = np.dtype({"cf32": np.float32, "cf64": np.float64}.get(dtype.name, kind))
    info = arrays.float_info(part)
    ends = [float(x) for x in (info.max, info.smallest_normal, info.smallest_subnormal)]
    values = np.array([0.0, 1.0, np.inf, np.nan, *ends])
    values = np.concatenate([values, -values])
    if dtype.is_complex:
        values = np.array([complex(a, b) for a in values for b in values])
    with np.errstate(all="ignore"):
        return values.astype(kind)


_PIECE = 1 << 15  # elements drawn at once, so that intermediates stay in cache


def _uniform(stream: np.random.Generator, shape: tuple[int, ...], dtype: DType, kind: np.dtype) -> Array:
    """Multiples of 2**-precision in [-1, 1), so that every dtype holds them exactly, as an array of `kind`."""
    one = 1 << dtype.precision
    result = np.empty(shape, kind)
    flat = result.reshape(-1)
    for start in range(0, flat.size, _PIECE):
        piece = flat[start : start + _PIECE]
        piece[...] = stream.integers(-one, one, piece.size) / one
    return result


@dataclass(slots=True, frozen=True)
class _Surroundings:
    """The context of a walk: the program, numbers for symbols, shapes of memrefs."""

    program: Program
    numbers: dict[str, int]
    shapes: Mapping[Value, Sequence[int]]  # shapes of memrefs whose type has open extents
    called: dict[str, Needs] = field(default_factory=dict)
    walked: dict[tuple[Region, tuple[Need, ...]], Needs] = field(default_factory=dict)

    def shape_of(self, x: Operand) -> Shape:
        """The extents of an operand, as far as they are known."""
        if isinstance(x, Value) and x in self.shapes:
            return tuple(self.shapes[x])
        t = operand_type(x)
        if isinstance(t, TensorType):
            return symbols.substitute(t, symbols.lookup_in(self.program, self.numbers)).shape if symbols.mentioned(t) else t.shape
        return t.extents if isinstance(t, NumericType) else ()


def _needs(main: Region, known: _Surroundings) -> list[Need]:
    """The needs of each input port, in order."""
    result = _walk(main, [], known)
    counts = [len(leaves(p.type)) for p in main.params]
    return [result.get((p, i), NOTHING) for p, n in zip(main.params, counts, strict=True) for i in range(n)]


def _walk(block: Region, asked: list[Need], known: _Surroundings) -> Needs:
    """The needs of a block's values, given the needs `asked` of its results."""
    key = block, tuple(asked)
    if (result := known.walked.get(key)) is not None:
        return result
    needs: Needs = {}
    _ask_all(needs, block.results, asked)
    for op in reversed(block.body):
        if (rule := op.defn.asks.own) is not None:
            for x, need in rule(op, known.shape_of):
                _ask(needs, x, need)
        if "callee" in op.defn.attr_index:
            _through_call(op, needs, known)
        if op.regions:
            _through_regions(op, needs, known)
        elif op.results and (need := needs.get((op.results[0], 0), NOTHING)) != NOTHING:
            for x, part in _passed(op, need):
                _ask(needs, x, part)
    known.walked[key] = needs
    return needs


def _ask(needs: Needs, x: Operand, need: Need) -> None:
    _ask_all(needs, [x], [need])


def _ask_all(needs: Needs, operands: Sequence[Operand], asked: Sequence[Need]) -> None:
    """Add the needs `asked` to the leaves of `operands`, one each."""
    for key, need in zip(_leaves(operands), asked, strict=False):
        if need != NOTHING and key is not None:
            needs[key] = needs.get(key, NOTHING) | need


def _leaves(operands: Sequence[Operand]) -> list[tuple[Value, int] | None]:
    """The leaves that operands read; None for a literal."""
    return [key for x in operands for key in ([None] if isinstance(x, Literal) else leaves_read(x))]


def _through_regions(op: Op, needs: Needs, known: _Surroundings) -> None:
    """Pass the needs of a region's parameters on to the op's last operands."""
    needed = [needs.get((op.results[0], i), NOTHING) for i in range(len(leaves(op.results[0].type)))] if op.results else []
    if isinstance(op.defn.control, Loop):
        return _ask_all(needs, op.operands, _of_loop(op, op.defn.control, needed, known))
    for r in op.regions:
        inner = _walk(r, needed if len(_leaves(r.results)) == len(needed) else [], known)
        if not r.isolated:
            for key, need in inner.items():
                needs[key] = needs.get(key, NOTHING) | need
        if (around := op.defn.asks.around) is not None:
            for x, need in around(op, inner.get((r.params[0], 0), NOTHING)):
                _ask(needs, x, need)
            continue
        n = min(len(r.params), len(op.operands))
        _ask_all(needs, op.operands[-n:] if n else [], _of_parameters(r.params[-n:], inner))


def _entering(block: Region, asked: list[Need], known: _Surroundings) -> list[Need]:
    """The needs of the leaves of a block's parameters."""
    return _of_parameters(block.params, _walk(block, asked, known))


def _of_parameters(params: Sequence[Value], inner: Needs) -> list[Need]:
    return [inner.get(key, NOTHING).loosely() for p in params for key in leaves_read(p)]


def _both(first: list[Need], second: list[Need]) -> list[Need]:
    return [a | b for a, b in zip(first, second, strict=True)]


_ROUNDS = 2  # an iteration must satisfy the needs of the next; needs through more carries than this are not followed


def _of_loop(op: Op, loop: Loop, asked: list[Need], known: _Surroundings) -> list[Need]:
    """The needs of a loop's operands. The carries that leave the test are the results of the loop or enter the body, whose first
    results enter the test, or the next iteration."""
    n = len(_leaves(op.operands[: loop.carries(op)]))

    def tested(kept: list[Need]) -> list[Need]:
        return kept if loop.test is None else _entering(op.regions[loop.test], [NOTHING, *kept], known)

    entering, rest = [NOTHING] * n, list[Need]()
    for _ in range(_ROUNDS):
        kept = _both(asked[:n], entering)
        inside = _entering(op.regions[loop.body], [*tested(kept), *asked[n:]], known)
        entering, rest = inside[:n], inside[n:]
    return [*tested(_both(asked[:n], entering)), *rest]


def _through_call(op: Op, needs: Needs, known: _Surroundings) -> None:
    """Pass the needs of a function's parameters on to the arguments."""
    callee = known.program.function(op.attr("callee"))
    assert callee is not None
    if callee.name not in known.called:
        known.called[callee.name] = _walk(callee, [], known)
    for x, p in zip(op.operands, callee.params, strict=True):
        _ask(needs, x, known.called[callee.name].get((p, 0), NOTHING))


def _passed(op: Op, need: Need) -> Asked:
    """The needs of each operand for a need of the result; an op that moves elements passes it to all."""
    if (rule := op.defn.asks.passed) is not None:
        return rule(op, need)
    return [(x, need.loosely()) for x in op.operands] if op.defn.is_movement else []
