"""Random inputs that a program can take: indices inside what they index, divisors that are not 0.

What an input must satisfy is found by walking the program backward from the ops that index or divide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ptir_tools.core import arrays, symbols
from ptir_tools.core.diagnostics import Violation
from ptir_tools.core.dtypes import DType, Kind
from ptir_tools.core.ir import Literal, Op, Operand, Program, Region, Value
from ptir_tools.core.lazy import lazy
from ptir_tools.core.limits import LIMITS, Limits
from ptir_tools.core.opdef import MOVEMENT, leaves_read, operand_type
from ptir_tools.core.types import MemRefType, Shape, TensorType, Type, leaves
from ptir_tools.engines.memory import addressed, require_memory
from ptir_tools.engines.needs import NOTHING, Need, Shapes, of_arithmetic, of_loop, of_tiles
from ptir_tools.engines.signature import Port, entry, signature

if TYPE_CHECKING:
    import numpy as np

    from ptir_tools.core.arrays import Array
else:
    np = lazy("numpy")

__all__ = ["Port", "random_array", "random_inputs", "signature"]

Needs = dict[tuple[Value, int], Need]


def random_inputs(
    program: Program,
    seed: int = 0,
    given: Mapping[str, Array] | None = None,
    function: str | None = None,
    bindings: Mapping[str, int] | None = None,
    limits: Limits = LIMITS,
) -> dict[str, Array]:
    """An array for every input that `given` leaves out, by name: floats uniform in [-1, 1), i1 fair, integers in [-8, 8)
    (unsigned [0, 16)), indices inside their extent, divisors not 0.

    Each input has its own stream, keyed by `seed` and position. Symbols are bound from `bindings`, the program's `dims` and
    the shapes of `given`. Raises Violation("UnboundSymbol") for an extent that stays open, and LimitExceeded when
    memory would not do.
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
    shapes = {x: given[x.name].shape for x in main.params if isinstance(x.type, MemRefType) and x.name in given}
    needs = _needs(main, _Surroundings(program, numbers, shapes))
    types = [symbols.substitute(p.type, symbols.lookup_in(program, numbers)) for p in ports]
    wanted = [(k, p, t, need) for k, (p, t, need) in enumerate(zip(ports, types, needs, strict=True)) if p.name not in given]
    if opened := [(p, s.name) for _, p, t, _ in wanted for s in symbols.mentioned(t)]:
        port, names = opened[0][0], ", ".join(dict.fromkeys(name for _, name in opened))
        way = "give it with --bind NAME=INT"
        raise Violation("UnboundSymbol", f"no value for {names}", help=way, at=f"%{port.name}:", loc=port.loc)
    require_memory(sum(addressed(_dtype(t), _shape(t)) for _, _, t, _ in wanted), limits)
    return {p.name: random_array(_dtype(t), _shape(t), seed, k, need) for k, p, t, need in wanted}


def _dtype(t: Type) -> DType:
    found: DType = t.dtype  # type: ignore[attr-defined]
    return found


def _shape(t: Type) -> tuple[int, ...]:
    shape: Shape = t.shape if isinstance(t, (TensorType, MemRefType)) else ()
    return tuple(d for d in shape if isinstance(d, int))


def random_array(dtype: DType, shape: tuple[int, ...], seed: int, position: int, need: Need = NOTHING) -> Array:
    """A random array of `dtype` and `shape` from the stream (`seed`, `position`) that satisfies `need`."""
    stream = np.random.Generator(np.random.Philox(key=np.array([seed % 2**64, position], np.uint64)))
    if need.bounds:
        bounds = need.bounds if shape[-1:] == (len(need.bounds),) else (min(need.bounds),)
        drawn = stream.integers(0, np.maximum(np.array(bounds, np.int64), 1), shape)
    elif dtype.is_complex:
        drawn = _uniform(stream, shape, dtype) + 1j * _uniform(stream, shape, dtype)
    elif dtype.is_float:
        drawn = _uniform(stream, shape, dtype)
    elif dtype.kind is Kind.BOOL:
        drawn = stream.integers(0, 2, shape)
    else:
        drawn = stream.integers(-8, 8, shape) if dtype.is_signed else stream.integers(0, 16, shape)
    if need.nonzero:
        drawn = np.where(drawn == 0, 1, drawn)
    return np.asarray(np.asarray(drawn).astype(arrays.numpy_dtype(dtype)))


def _uniform(stream: Any, shape: tuple[int, ...], dtype: DType) -> Any:
    """Multiples of 2**-precision in [-1, 1), so that every dtype holds them exactly."""
    one = 1 << dtype.precision
    return stream.integers(-one, one, shape) / one


@dataclass(slots=True, frozen=True)
class _Surroundings:
    """What a walk knows beside the block: the program, numbers of symbols, shapes of memrefs."""

    program: Program
    numbers: dict[str, int]
    shapes: Shapes
    called: dict[str, Needs] = field(default_factory=dict)


def _needs(main: Region, known: _Surroundings) -> list[Need]:
    """What is asked of each input port, in order."""
    found = _walk(main, [], known)
    counts = [len(leaves(p.type)) for p in main.params]
    return [found.get((p, i), NOTHING) for p, n in zip(main.params, counts, strict=True) for i in range(n)]


def _walk(block: Region, asked: list[Need], known: _Surroundings) -> Needs:
    """What `block` asks of its values when its callers ask `asked` of its results."""
    needs: Needs = {}
    _ask_all(needs, block.results, asked)
    for op in reversed(block.body):
        for i, need in _direct(op, known.numbers):
            _ask(needs, op.operands[i], need)
        for x, need in of_tiles(op, known.shapes) if known.program.dialect.name == "pto" else ():
            _ask(needs, x, need)
        if op.name == "pto.func.call":
            _through_call(op, needs, known)
        if op.regions:
            _through_regions(op, needs, known)
        elif op.results and (need := needs.get((op.results[0], 0), NOTHING)) != NOTHING:
            for x, part in (*zip(op.operands, _passed(op, need), strict=False), *of_arithmetic(op, need)):
                _ask(needs, x, part)
    return needs


def _ask(needs: Needs, x: Operand, need: Need) -> None:
    _ask_all(needs, [x], [need])


def _ask_all(needs: Needs, operands: Sequence[Operand], asked: Sequence[Need]) -> None:
    """Ask `asked` of the leaves of `operands`, one of each."""
    for key, need in zip(_leaves(operands), asked, strict=False):
        if need != NOTHING and key is not None:
            needs[key] = needs.get(key, NOTHING) | need


def _leaves(operands: Sequence[Operand]) -> list[tuple[Value, int] | None]:
    """The leaves that operands read; None for a literal."""
    return [key for x in operands for key in ([None] if isinstance(x, Literal) else leaves_read(x))]


def _through_regions(op: Op, needs: Needs, known: _Surroundings) -> None:
    """A region's parameters ask of the operands that become them: the last ones, whatever stands before."""
    asked = [needs.get((op.results[0], i), NOTHING) for i in range(len(leaves(op.results[0].type)))] if op.results else []
    if op.name in _LOOPS:
        return _ask_all(needs, op.operands, _LOOPS[op.name](op, asked, known))
    for r in op.regions:
        inner = _walk(r, asked if len(_leaves(r.results)) == len(asked) else [], known)
        if not r.isolated:
            for key, need in inner.items():
                needs[key] = needs.get(key, NOTHING) | need
        if op.name == "pto.scf.for":
            for x, need in of_loop(op, inner.get((r.params[0], 0), NOTHING)):
                _ask(needs, x, need)
            continue
        n = min(len(r.params), len(op.operands))
        _ask_all(needs, op.operands[-n:] if n else [], _of_parameters(r.params[-n:], inner))


def _entering(block: Region, asked: list[Need], known: _Surroundings) -> list[Need]:
    """What a block asks of the leaves of its parameters."""
    return _of_parameters(block.params, _walk(block, asked, known))


def _of_parameters(params: Sequence[Value], inner: Needs) -> list[Need]:
    return [inner.get(key, NOTHING).loosely() for p in params for key in leaves_read(p)]


def _both(first: list[Need], second: list[Need]) -> list[Need]:
    return [a | b for a, b in zip(first, second, strict=True)]


_ROUNDS = 2  # an iteration gives what the next one asks; what moves through more carries than this is not followed


def _of_while(op: Op, asked: list[Need], known: _Surroundings) -> list[Need]:
    """The condition's carry is the result and enters the body, whose results enter the condition again."""
    condition, body = op.regions
    entering = [NOTHING] * len(asked)
    for _ in range(_ROUNDS):
        kept = _both(asked, _entering(body, entering, known))
        entering = _entering(condition, [NOTHING, *kept], known)
    return entering


def _of_scan(op: Op, asked: list[Need], known: _Surroundings) -> list[Need]:
    """The first results of the body are its first parameters in the next step."""
    n = len(_leaves(op.operands[: op.attr("carry_count")]))
    entering = _entering(op.regions[0], asked, known)
    for _ in range(_ROUNDS - 1):
        entering = _entering(op.regions[0], [*_both(asked[:n], entering[:n]), *asked[n:]], known)
    return _both(entering, [*asked[:n], *[NOTHING] * (len(entering) - n)])


_LOOPS = {"ptir.while": _of_while, "ptir.scan": _of_scan}


def _through_call(op: Op, needs: Needs, known: _Surroundings) -> None:
    """What a function asks of its parameters it asks of the arguments."""
    callee = known.program.function(op.attr("callee"))
    assert callee is not None
    if callee.name not in known.called:
        known.called[callee.name] = _walk(callee, [], known)
    for x, p in zip(op.operands, callee.params, strict=True):
        _ask(needs, x, known.called[callee.name].get((p, 0), NOTHING))


def _direct(op: Op, numbers: dict[str, int]) -> list[tuple[int, Need]]:
    """What `op` itself asks of its operands: (position, need)."""
    found = []
    if (divisor := _DIVISORS.get(op.name)) is not None:
        found.append((divisor, Need(nonzero=True)))
    if (rule := _INDEXES.get(op.name)) is not None:
        t = symbols.substitute(operand_type(op.operands[0]), lambda s: numbers.get(s.name, s))
        shape = tuple(d if isinstance(d, int) else 1 for d in t.shape)
        i, bounds = rule(op, shape)
        found.append((i, Need(bounds)))
    return found


def _sliced(position: int) -> Callable[[Op, tuple[int, ...]], tuple[int, tuple[int, ...]]]:
    def rule(op: Op, shape: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        sizes = (s if isinstance(s, int) else 1 for s in op.attr("sizes"))
        return position, tuple(max(n - s + 1, 1) for n, s in zip(shape, sizes, strict=True))

    return rule


_INDEXES: dict[str, Callable[[Op, tuple[int, ...]], tuple[int, tuple[int, ...]]]] = {
    "ptir.take": lambda op, shape: (1, shape[:1]),
    "mind.Gather": lambda op, shape: (1, shape[:1]),
    "ptir.gather": lambda op, shape: (1, (shape[op.attr("axis")],)),
    "ptir.scatter_reduce": lambda op, shape: (1, (shape[op.attr("axis")],)),
    "ptir.scatter_add": lambda op, shape: (1, (min((shape[d] for d in op.attr("scatter_dims_to_operand_dims")), default=1),)),
    "ptir.segment_reduce": lambda op, shape: (1, (op.attr("num_segments"),)),
    "ptir.dynamic_slice": _sliced(1),
    "ptir.dynamic_update_slice": _sliced(2),
}

# Which operand divides.
_DIVISORS = {"ptir.div": 1, "ptir.reciprocal": 0, "mind.Div": 1, "tiny.DIV": 1, "tiny.RECIP": 0}

_KEEPING = ("ptir.stop_gradient", "ptir.reshape", "ptir.cast", "mind.Cast", "mind.Reshape", "tiny.CAST", "tiny.VIEW")
_FIRST = ("ptir.pad", "ptir.take", "ptir.dynamic_slice", "tiny.PAD")  # elements of the first operand, moved
_SIGN_ONLY = ("ptir.neg", "ptir.abs")


def _passed(op: Op, need: Need) -> list[Need]:
    """What a need of the result asks of each operand, where the op only moves or converts elements."""
    if op.name in _KEEPING:
        return [need]
    if op.name in _SIGN_ONLY:
        return [Need(nonzero=need.nonzero)]
    if op.name == "ptir.select":
        return [NOTHING, need, need]
    if op.name == "ptir.concat" and len(need.bounds) > 1:
        return _split(op, need)
    if op.name in _FIRST:
        return [need.loosely()]
    return [need.loosely()] * len(op.operands) if op.defn.traits & MOVEMENT else []


def _split(op: Op, need: Need) -> list[Need]:
    """The part of a vector's bounds that falls to each operand of a concat."""
    lengths = [_shape(operand_type(x))[:1] for x in op.operands]
    parts, at = [], 0
    for length in lengths:
        end = at + (length[0] if length else 0)
        parts.append(Need(need.bounds[at:end], need.nonzero) if end > at else need.loosely())
        at = end
    return parts
