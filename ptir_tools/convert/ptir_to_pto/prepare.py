"""A PTIR function as kernels take it: what tiles lack made of what they have, parts written to memory, loops with bounds."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from struct import pack, unpack
from typing import Any

from ptir_tools.convert.emitter import NOT_TRANSLATABLE
from ptir_tools.convert.naming import spelled
from ptir_tools.convert.options import CONSTANTS
from ptir_tools.convert.ptir_to_pto.approximations import APPROXIMATIONS
from ptir_tools.convert.ptir_to_pto.axes import Look, Spot, equal, flat, fresh
from ptir_tools.convert.ptir_to_pto.kernel import COUNT, POSITIONS, REDUCTIONS, TAKE, unfit
from ptir_tools.convert.ptir_to_pto.outline import Branch, Item, Loop, Outline, Write, blocks, values_of
from ptir_tools.core import arrays
from ptir_tools.core.builder import Builder
from ptir_tools.core.diagnostics import Diagnostics, Violation, require
from ptir_tools.core.dialect import Options, Program, clone
from ptir_tools.core.dtypes import F32, I1, SI32, SI64, DType
from ptir_tools.core.evaluate import Context, computed
from ptir_tools.core.ir import Element, Function, Literal, Op, Operand, Region, Value, operand_type
from ptir_tools.core.source import Loc
from ptir_tools.core.types import TensorType, TupleType, Type, tensor
from ptir_tools.dialects.ptir.ops import scalars as numbers
from ptir_tools.dialects.pto.targets import ALIGNMENT, Target
from ptir_tools.passes import PassContext, run_pipeline
from ptir_tools.rewrite.constants import element_of, literal_of

INDICES = (SI32, SI64)
_KNOWN = 1 << 16  # elements of what is computed here
_TAPS = 128  # of a window that is taken one by one
_ARITHMETIC = ("add", "sub", "mul", "minimum", "maximum")
_COMPARISONS = {"compare_lt": "lt", "compare_le": "le", "compare_gt": "gt", "compare_ge": "ge", "compare_ne": "ne"}
_TURNED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "ne": "ne"}

_NAMED = 8  # constants in a message


def prepared(program: Program, target: Target, options: Options, diagnostics: Diagnostics) -> Outline:
    """The entry, with what its results need. Constants that are not one number become parameters, whose values go to the option
    CONSTANTS; where there is none, a warning says which they are."""
    if any(op.defn.short == "layer_norm" for block in (program.main, *program.regions) for op in block.body):
        program = clone(program)
        run_pipeline(program, "decompose", PassContext())
    return _Preparation(program, target, options, diagnostics).run()


class _Preparation:
    def __init__(self, program: Program, target: Target, options: Options, diagnostics: Diagnostics) -> None:
        self.main = program.main
        self.target = target
        self.options = options
        self.diagnostics = diagnostics
        self.top = Function(self.main.name, loc=self.main.loc)
        self.b = Builder(program.dialect, self.top)
        self.outline = Outline(self.main.name, attrs=dict(self.main.attrs), loc=self.main.loc)
        self.values: dict[Value, Operand] = {}
        self.elements: dict[tuple[Value, int], Operand] = {}  # of tuples
        self.bounded: dict[Value, int] = {}  # the largest that a counter is
        self.counters: dict[Value, Operand] = {}  # what counters of loops are in the end
        self.rules = _RULES
        self.arrays: dict[Value, Any] = {}  # what is known of values
        self.indices: set[Value] = set()  # si64 that say nothing but places: si32 here
        self.constants: dict[int, Value] = {}  # parameters that are constants, by what they are

    def run(self) -> Outline:
        """The function, built op by op."""
        outline = self.outline
        names = self.main.attrs.get("input_names") or [p.name for p in self.main.params]
        for p, name in zip(self.main.params, names, strict=True):
            self.values[p] = made = self.b.param(p.type, spelled(name))
            if reason := unfit(p.type):
                self.diagnostics.error(NOT_TRANSLATABLE, f"parameter %{p.name}: {reason}", self.main.loc)
                outline.lost.add(made)
            elif not p.type.shape:  # type: ignore[attr-defined]
                outline.scalars.add(made)
        outline.params = self.top.params
        self.block(self.main)
        self.b.loc = self.main.loc
        for x in self.main.results:
            outline.results.append(self.result(x))
        outline.items = self.b.block.body  # type: ignore[assignment]
        _prune(outline)
        if self.options[CONSTANTS] is None:
            self.warn_of([v for v in self.constants.values() if v in outline.params])
        return outline

    def warn_of(self, left: Sequence[Value]) -> None:
        """Report the parameters that are constants whose values no file takes."""
        if left:
            named = ", ".join(f"%{v.name}" for v in left[:_NAMED]) + (f" and {len(left) - _NAMED} more" if left[_NAMED:] else "")
            what = "constants are parameters, whose values are" if left[1:] else "constant is a parameter, whose value is"
            help = "`--constants FILE.npz` writes them there, for whoever runs the kernel"
            self.diagnostics.warning("ConstantsLeft", f"{len(left)} {what} not written: {named}", self.main.loc, help=help)

    def block(self, block: Region) -> None:
        """What the results of a block need."""
        needed = _needed(block)
        self.indices |= _places(block, needed)
        for op in block.body:
            if op in needed:
                self.b.loc = op.loc
                self.op(op)

    @contextmanager
    def inside(self) -> Iterator[list[Item]]:
        """Build into a list of its own."""
        outer, self.b.block = self.b.block, Region()
        yield self.b.block.body  # type: ignore[misc]
        self.b.block = outer

    def add(self, item: Loop | Branch) -> None:
        """Append a loop or branch."""
        self.b.block.body.append(item)  # type: ignore[arg-type]

    def op(self, op: Op) -> None:
        """One op of the source."""
        try:
            rule = self.rules.get(op.defn.short)
            operands = [self.operand(x) for x in op.operands]
            if (made := self.folded(op)) is not None:
                self.values[op.result] = made
                return
            short = op.defn.short
            if (short in _OF_PLACES and op.result in self.indices) or (
                short in _READ_PLACES and self.indices.intersection(op.values())
            ):
                operands = [self.narrow(x) for x in operands]
            if self.outline.lost.intersection(values_of(operands)):
                raise _Lost
            if op.regions and rule is not None:
                self.several(op, rule(self, op, *operands))
            elif rule is not None and _fits(op, operands):
                made = rule(self, op, *operands)
                if isinstance(made, list):
                    self.several(op, made)
                else:
                    self.values[op.result] = made
            elif op.defn.is_constant and element_of(op.attr("value")) is None:
                self.values[op.result] = self.constant(op.attr("value"), op.result.name, op.loc)
            else:
                if not isinstance(op.result.type, TensorType) or op.regions:
                    reasons = [*map(unfit, map(operand_type, operands)), f"no tile op does what {op.defn.short} does"]
                    raise Violation(NOT_TRANSLATABLE, next(filter(None, reasons)))
                self.values[op.result] = self.copy(op, operands)
        except Violation as violation:
            self.diagnostics.error(NOT_TRANSLATABLE, violation.message, violation.loc or op.loc, help=violation.help)
            self.lose(op)
        except _Lost:
            self.lose(op)

    def folded(self, op: Op) -> Operand | None:
        """What an op makes of known integers of 64 bits, which targets do not compute in: a constant."""
        wide = any(isinstance(t := operand_type(x), TensorType) and t.dtype is SI64 for x in op.operands)
        t = op.result.type
        if not wide or not isinstance(t, TensorType) or t.dtype is SI64 or (array := self.known(op.result)) is None:
            return None
        literal = arrays.to_literal(array, t)
        return literal if element_of(literal) is not None else self.constant(literal, op.result.name, op.loc)

    def known(self, x: Operand) -> Any:
        """The array of an operand that follows from constants; None for others, and for large ones."""
        if isinstance(x, Element):
            return None
        t = operand_type(x)
        if not isinstance(t, TensorType) or not t.is_static or t.count > _KNOWN:
            return None
        if (literal := literal_of(x)) is not None:
            return None if literal.data is None else arrays.from_literal(literal)
        if not isinstance(x, Value) or x.op is None or x.op.regions or x.op.defn.is_random or not x.op.defn.implemented:
            return None
        if x not in self.arrays:
            operands = [self.known(y) for y in x.op.operands]
            fine = all(a is not None for a in operands)
            self.arrays[x] = computed(x.op, operands, Context()) if fine else None
        return self.arrays[x]

    def narrow(self, x: Operand) -> Operand:
        """A place in si32; one that this has not is outside of everything, too."""
        t = operand_type(x)
        if isinstance(x, Element) or not isinstance(t, TensorType) or t.dtype is not SI64:
            return x
        if isinstance(x, Literal):
            n = _integer(x)
            assert n is not None
            return _index(max(SI32.min, min(n, SI32.max)), SI32, t.static_shape)
        if x in self.outline.scalars or x in self.outline.lost:
            return x
        if x.op is not None and x.op.defn.short == COUNT:
            return self.b.op("iota", shape=t.shape, dtype=SI32, axis=x.op.attr("axis"))
        return self.b.op("cast", x, dtype=SI32)

    def several(self, op: Op, made: Sequence[Operand]) -> None:
        """Let an op have several results, the elements of its value where they are not one."""
        if len(made) == 1:
            self.values[op.result] = made[0]
        for i, x in enumerate(made):
            self.elements[op.result, i] = x

    def lose(self, op: Op) -> None:
        """Let an op have no result."""
        self.values[op.result] = made = Value(op.result.type, op.result.name)
        self.outline.lost.add(made)

    def operand(self, x: Operand) -> Operand:
        """What an operand became."""
        if isinstance(x, Literal):
            return self.constant(x, "const", self.b.loc) if element_of(x) is None else x
        if isinstance(x, Value):
            return self.values.get(x, x)
        found = self.elements.get((x.value, x.index))
        return found if found is not None else Element(self.values[x.value], x.index)  # type: ignore[arg-type]

    def copy(self, op: Op, operands: list[Operand]) -> Value:
        """The op itself."""
        if op.result in self.indices and op.defn.short in _OF_PLACES:
            return self.b.op(op.defn.short, *operands, **op.defn.named(op.attrs), name=op.result.name)
        new = Op(op.defn, tuple(operands), op.attrs, (), op.regions, op.loc)
        new.results = tuple(Value(v.type, self.b.name(v.name), new) for v in op.results)
        self.b.block.body.append(new)
        return new.results[0]

    def result(self, x: Operand) -> Operand:
        """A value that is in memory of its own and returned once."""
        v = self.operand(x)
        if isinstance(v, Element) or v in self.outline.lost or not isinstance(operand_type(v), TensorType):
            return v  # refused where it is made
        if isinstance(v, Literal):
            v = self.b.op("broadcast_to", v, result_shape=v.type.shape)
        own = v in self.outline.params or (v.op is not None and (v.op.defn.is_constant or v.op.defn.short == COUNT))
        if own or v in self.outline.scalars or v in self.outline.results:
            return self.b.op("stop_gradient", v, name=v.name)
        return v

    def constant(self, x: Literal, name: str, loc: Loc) -> Value:
        """A parameter whose value goes to the caller's file."""
        if (made := self.constants.get(id(x))) is not None:
            return made
        outer, self.b.block = self.b.block, self.top
        made = self.constants[id(x)] = self.b.param(x.type, spelled(name))
        self.b.block = outer
        if x.data is None:
            self.diagnostics.error(NOT_TRANSLATABLE, "the payload of the constant is not in the file", loc)
        elif (kept := self.options[CONSTANTS]) is not None:
            kept[made.name] = x
        return made

    def table(self, values: Sequence[Any], dtype: DType, name: str) -> Operand:
        """Constants of f32 or si32: a parameter, or a number where all are one."""
        code = "<f" if dtype.is_float else "<i"
        literal = Literal(tensor(dtype, (len(values),)), b"".join(pack(code, v) for v in values))
        return literal if element_of(literal) is not None else self.constant(literal, name, self.b.loc)

    # Memory

    def memory(self, t: Type, name: str) -> Value:
        """Memory that copies write to."""
        return Value(t, self.b.name(name))

    def write(self, memory: Value, x: Operand, first: Sequence[Spot] = (), steps: Sequence[int] = ()) -> None:
        """Put `x` into a part of memory."""
        t = _tensor(x)
        if isinstance(x, Literal):
            x = self.b.op("broadcast_to", Literal(tensor(t.dtype, ()), element_of(x)), result_shape=t.shape)
        made = self.b.op("stop_gradient", x, name=memory.name)
        self.outline.writes[made] = Write(memory, tuple(first) or (Spot(),) * t.rank, tuple(steps) or (1,) * t.rank)

    def seen(self, short: str, look: Look, x: Operand, *operands: Operand, **attrs: Any) -> Value:
        """A part of `x`."""
        made = self.b.op(short, x, *operands, **attrs)
        assert made.op is not None
        made.op.operands = (x,)
        self.outline.looks[made.op] = look
        return made

    def element(self, x: numbers.Scalar, dtype: DType) -> bytes:
        """The bytes of a number."""
        return arrays.pack(numbers.element(x, dtype).reshape(1), dtype)

    def fill(self, t: TensorType, data: bytes) -> Literal:
        """A literal of one number."""
        return Literal(t, data, True)

    # Numbers outside of kernels

    def number(self, x: Operand, at: int = 0) -> Operand | None:
        """Element `at` of an operand, as a scalar; None where it is known in kernels only."""
        while isinstance(x, Value) and x.op is None and x in self.values:
            x = self.values[x]
        if isinstance(x, Element):
            found = self.elements.get((x.value, x.index))
            return None if found is None else self.number(found, at)
        if (literal := literal_of(x)) is not None:
            size = literal.type.dtype.size
            if literal.data is None or (literal.type.dtype.bits < 8 and literal.type.dtype is not I1):
                return None
            at = 0 if literal.splat else at * size
            return Literal(tensor(literal.type.dtype, ()), literal.data[at : at + size])
        if not isinstance(x, Value) or not isinstance(x.type, TensorType) or not x.type.is_static:
            return None
        if x in self.outline.scalars:
            return x
        return None if x.op is None else self._computed(x.op, x.type, at)

    def _computed(self, op: Op, t: TensorType, at: int) -> Operand | None:
        short, shape = op.defn.short, t.static_shape
        where = _unraveled(at, shape)
        if (look := self.outline.looks.get(op)) is not None:
            return self._seen(op.operands[0], look, where)
        if short in ("reshape", "stop_gradient"):
            return self.number(op.operands[0], at)
        if short == COUNT:
            return _index(where[op.attr("axis")], t.dtype)
        inputs = [operand_type(x) for x in op.operands]
        if not all(isinstance(i, TensorType) and i.is_static for i in inputs):
            return None
        first = inputs[0].static_shape if inputs else ()  # type: ignore[attr-defined]
        if short == "broadcast_to":
            inner = [0 if n == 1 else i for i, n in zip(where[len(where) - len(first) :], first, strict=True)]
            return self.number(op.operands[0], _raveled(inner, first))
        if short == "transpose":
            place = dict(zip(op.attr("perm"), where, strict=True))
            return self.number(op.operands[0], _raveled([place[d] for d in range(len(first))], first))
        if short == "slice":
            starts = op.attr("starts")
            return self.number(op.operands[0], _raveled([i + s for i, s in zip(where, starts, strict=True)], first))
        if short == "concat":
            axis = op.attr("axis") % t.rank
            for x, i in zip(op.operands, inputs, strict=True):
                n = i.static_shape  # type: ignore[attr-defined]
                if where[axis] < n[axis]:
                    return self.number(x, _raveled(where, n))
                where[axis] -= n[axis]
        own = (t.dtype in INDICES and short in _ARITHMETIC) or short in _COMPARISONS or short == "compare_eq"
        cast = short == "cast" and t.dtype in INDICES
        if not (own or cast) or any(i.dtype not in INDICES for i in inputs):  # type: ignore[attr-defined]
            return None
        if cast and t.dtype.bits < inputs[0].dtype.bits:  # type: ignore[attr-defined]
            return None
        operands = [self.number(x, at) for x in op.operands]
        if None in operands:
            return None
        return self.arithmetic(short, *operands, **({"dtype": t.dtype} if cast else {}))  # type: ignore[arg-type]

    def _seen(self, x: Operand, look: Look, where: Sequence[int]) -> Operand | None:
        """An element of a part."""
        t = _tensor(x)
        inside = {pair: i for group, at in zip(look.groups, where, strict=True) for pair, i in _digits(look, group, at)}
        spots = [
            Spot((), s.start + sum(k * inside.get((d, i), 0) for i, (_, k) in enumerate(cut)), s.shifts)
            for d, (s, cut) in enumerate(zip(look.first, look.cuts, strict=True))
        ]
        if not any(s.shifts for s in spots):
            return self.number(x, _raveled([s.start for s in spots], t.static_shape))
        if not isinstance(x, Value) or x.op is None or x.op.defn.short != COUNT:
            return None
        spot = spots[x.op.attr("axis")]
        found: Operand = _index(spot.start, t.dtype)
        for v, k in spot.shifts:
            if _dtype(v) is not t.dtype:
                return None
            found = self.arithmetic("add", self.arithmetic("mul", v, _index(k, t.dtype)), found)
        return found

    def arithmetic(self, short: str, *operands: Operand, **attrs: Any) -> Operand:
        """A number of numbers."""
        known = [_integer(x) for x in operands]
        t = operand_type(operands[0])
        assert isinstance(t, TensorType)
        folds: dict[str, Callable[..., int]] = {
            "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "minimum": min, "maximum": max,
            "div": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
        }  # fmt: skip
        if None not in known and short in folds and t.dtype.min <= (n := folds[short](*known)) <= t.dtype.max:
            return _index(n, t.dtype)
        if short == "mul" and 1 in known:
            return operands[known.index(1) ^ 1]
        if short == "add" and 0 in known:
            return operands[known.index(0) ^ 1]
        made = self.b.op(short, *operands, **attrs)
        self.outline.scalars.add(made)
        return made

    # Parts

    def starts(self, x: Operand, shape: Sequence[int], sizes: Sequence[int]) -> list[Spot] | None:
        """Where a window of `sizes` begins, which stays inside `shape`; None where that is data."""
        found = []
        for d, (n, size) in enumerate(zip(shape, sizes, strict=True)):
            at = self.number(x, d) if n > size else _index(0, SI32)
            if at is None:
                return None
            t = operand_type(at)
            assert isinstance(t, TensorType)
            inside = isinstance(at, Value) and at in self.bounded and self.bounded[at] <= n - size
            if not inside:
                at = self.arithmetic("minimum", self.arithmetic("maximum", at, _index(0, t.dtype)), _index(n - size, t.dtype))
            known = _integer(at)
            found.append(Spot((), known) if known is not None else Spot((), 0, ((at, 1),)))  # type: ignore[arg-type]
        return found

    def slice(self, op: Op, x: Operand) -> Operand:
        """A part from a place that is written."""
        return self.part(x, [Spot((), s) for s in op.attr("starts")], op.attr("sizes"), op.result.name)

    def part(self, x: Operand, first: Sequence[Spot], sizes: Sequence[int], name: str) -> Operand:
        """`sizes` elements of `x` from `first` on."""
        if isinstance(x, Literal):
            return self.fill(x.type.with_shape(tuple(sizes)), element_of(x) or b"")
        look = Look(tuple(first), tuple(((n, 1),) for n in sizes), tuple(((d, 0),) for d in range(len(sizes))))
        starts = tuple(s.start for s in first)
        return self.seen("slice", look, x, starts=starts, sizes=tuple(sizes), name=name)

    def dynamic_slice(self, op: Op, x: Operand, start: Operand) -> Operand:
        """A part from a place that is a scalar, or else data."""
        sizes, shape = op.attr("sizes"), _tensor(x).static_shape
        first = self.starts(op.operands[1], shape, sizes)
        if first is not None:
            return self.part(x, first, sizes, op.result.name)
        for d, (n, size) in enumerate(zip(shape, sizes, strict=True)):
            if n != size:
                one = self.part(start, [Spot((), d)], (1,), "start")
                x = self.taken_along(x, d, self.places(one, n, size))
        return x

    def places(self, start: Operand, n: int, size: int) -> Value:
        """The places of a window of data, which stays inside."""
        t = tensor(_dtype(start), (1,))
        inside = self.b.op("clamp", start, _index(0, t.dtype, (1,)), _index(n - size, t.dtype, (1,)))
        count = self.b.op("iota", shape=(size,), dtype=t.dtype, axis=0)
        return self.b.op("add", self.b.op("broadcast_to", inside, result_shape=(size,)), count)

    def taken_along(self, x: Operand, axis: int, indices: Operand) -> Operand:
        """`x` at `indices`, a vector, along one axis."""
        rank = _tensor(x).rank
        perm = [axis, *(d for d in range(rank) if d != axis)]
        made = self.b.op(TAKE, self.transposed(x, perm), indices)
        back = [perm.index(d) for d in range(rank)]
        return self.transposed(made, back)

    def update(self, op: Op, x: Operand, part: Operand, start: Operand) -> Operand:
        """A copy with one part replaced."""
        sizes, shape = op.attr("sizes"), _tensor(x).static_shape
        first = self.starts(op.operands[2], shape, sizes)
        if first is None:
            return self.masked(op, x, part, start)
        memory = self.memory(op.result.type, op.result.name)
        if tuple(sizes) != shape:
            self.write(memory, x)
        self.write(memory, part, first)
        return memory

    def masked(self, op: Op, x: Operand, part: Operand, start: Operand) -> Operand:
        """A copy with a part replaced that begins at data."""
        shape, sizes, inside = _tensor(x).static_shape, op.attr("sizes"), None
        for d, (n, size) in enumerate(zip(shape, sizes, strict=True)):
            if n == size:
                continue
            one, t = self.part(start, [Spot((), d)], (1,), "start"), _dtype(start)
            one = self.b.op("clamp", one, _index(0, t, (1,)), _index(n - size, t, (1,)))
            count = self.b.op("iota", shape=(n,), dtype=t, axis=0)
            at = self.b.op("sub", count, self.b.op("broadcast_to", one, result_shape=(n,)))
            above = self.b.op("compare_ge", at, _index(0, t, (n,)))
            here = self.b.op("select", self.b.op("compare_lt", at, _index(size, t, (n,))), above, self.b.op("compare_ne", at, at))
            at = self.b.op("clamp", at, _index(0, t, (n,)), _index(size - 1, t, (n,)))
            part = self.taken_along(part, d, at)
            spread = self.b.op("reshape", here, new_shape=tuple(n if i == d else 1 for i in range(len(shape))))
            mask = self.b.op("broadcast_to", spread, result_shape=shape)
            inside = mask if inside is None else self.b.op("select", mask, inside, mask)
        return part if inside is None else self.b.op("select", inside, part, x, name=op.result.name)

    def concat(self, op: Op, *xs: Operand) -> Operand:
        """Parts next to each other in memory."""
        axis, memory, at = op.attr("axis") % _tensor(xs[0]).rank, self.memory(op.result.type, op.result.name), 0
        for x in xs:
            t = _tensor(x)
            if 0 not in t.static_shape:
                self.write(memory, x, [Spot((), at if d == axis else 0) for d in range(t.rank)])
            at += t.static_shape[axis]
        return memory

    def pad(self, op: Op, x: Operand) -> Operand:
        """A part of memory that is filled."""
        low, high, interior = op.attr("low"), op.attr("high"), op.attr("interior")
        fill = self.element(op.attr("pad_value"), _dtype(x))
        return self.padded(x, low, high, interior, fill, op.result.name)

    def padded(
        self, x: Operand, low: Sequence[int], high: Sequence[int], interior: Sequence[int], fill: bytes, name: str
    ) -> Operand:
        """`x` with `fill` around and between."""
        if not any((*low, *high, *interior)):
            return x
        t = _tensor(x)
        extents = zip(low, t.static_shape, high, interior, strict=True)
        to = t.with_shape(tuple(a + n + b + (n - 1) * i for a, n, b, i in extents))
        memory = self.memory(to, name)
        self.write(memory, self.fill(to, fill))
        self.write(memory, x, [Spot((), a) for a in low], [i + 1 for i in interior])
        return memory

    def patches(self, op: Op, x: Operand) -> Operand:
        """Windows of memory, padded where they leave it."""
        window, steps, dilation, padding = (op.attr(n) for n in ("window", "strides", "dilation", "padding"))
        low, high = ([0, *(p[i] for p in padding), 0] for i in (0, 1))
        fill = self.element(op.attr("pad_value"), _dtype(x))
        x = self.padded(x, low, high, [0] * len(low), fill, "padded")
        if isinstance(x, Literal):
            return self.fill(op.result.type, element_of(x) or b"")  # type: ignore[arg-type]
        shape, rank = op.result.type.static_shape, len(low)  # type: ignore[attr-defined]
        places = zip(shape[1:-1], steps, window, dilation, strict=True)
        cuts = (((shape[0], 1),), *(((n, s), (w, d)) for n, s, w, d in places), ((_tensor(x).static_shape[-1], 1),))
        middle = range(1, rank - 1)
        groups = (((0, 0),), *(((d, 0),) for d in middle), (*((d, 1) for d in middle), (rank - 1, 0)))
        attrs = {"window": window, "strides": steps, "dilation": dilation}
        return self.seen("extract_patches", Look((Spot(),) * rank, cuts, groups), x, **attrs, name=op.result.name)

    def windows(self, op: Op, x: Operand) -> Operand:
        """A window's elements, each for all windows at once, one after the other."""
        window, steps, base, dilation = (op.attr(n) for n in ("window_dims", "strides", "base_dilation", "window_dilation"))
        require(prod(window) <= _TAPS, NOT_TRANSLATABLE, f"a window of {prod(window)} elements is not reduced one by one")
        short, t, to = op.attr("reduce"), _tensor(x), _dtype(op.result)
        accum = (op.attr("accum_dtype") or _accumulator(t.dtype)) if short == "sum" else t.dtype
        low, high = ([p[i] for p in op.attr("padding")] for i in (0, 1))
        x = self.padded(x, low, high, [n - 1 for n in base], _identity(short, t.dtype), "padded")
        places = op.result.type.static_shape  # type: ignore[attr-defined]
        total: Operand | None = None
        for k in range(prod(window)):
            taps = _unraveled(k, window)
            tap = self.strided(x, [i * d for i, d in zip(taps, dilation, strict=True)], places, steps)
            tap = self.cast(tap, accum)
            name = {"sum": "add", "max": "maximum", "min": "minimum"}[short]
            total = tap if total is None else self.b.op(name, total, tap, name=op.result.name)
        assert total is not None
        return self.cast(total, to, op.result.name)

    def strided(self, x: Operand, first: Sequence[int], shape: Sequence[int], steps: Sequence[int]) -> Operand:
        """Every `steps`-th element of `x` from `first` on."""
        if isinstance(x, Literal):
            return self.fill(x.type.with_shape(tuple(shape)), element_of(x) or b"")
        look = Look(
            tuple(Spot((), s) for s in first),
            tuple(((n, k),) for n, k in zip(shape, steps, strict=True)),
            tuple(((d, 0),) for d in range(len(shape))),
        )
        return self.seen("slice", look, x, starts=(0,) * len(shape), sizes=tuple(shape))

    def reshape(self, op: Op, x: Operand) -> Operand:
        """The same elements in other extents; where these have no common parts, through a vector in memory."""
        shape = op.result.type.static_shape  # type: ignore[attr-defined]
        try:
            equal(flat(fresh(shape)), flat(fresh(_tensor(x).static_shape)))
        except Violation:
            x = self.b.op("stop_gradient", self.b.op("reshape", x, new_shape=(prod(shape),)))
            self.outline.kept.add(x)
        return self.b.op("reshape", x, new_shape=shape, name=op.result.name)

    def tiled(self, op: Op, x: Operand) -> Operand:
        """Repeated as a whole: more axes, then fewer."""
        shape, repeats = _tensor(x).static_shape, op.attr("repeats")
        apart = self.b.op("reshape", x, new_shape=tuple(n for d in shape for n in (1, d)))
        pairs = tuple(n for r, d in zip(repeats, shape, strict=True) for n in (r, d))
        spread = self.b.op("broadcast_to", apart, result_shape=pairs)
        return self.b.op("reshape", spread, new_shape=op.result.type.static_shape, name=op.result.name)  # type: ignore[attr-defined]

    def take(self, op: Op, x: Operand, indices: Operand) -> Operand:
        """Rows by numbers that are counted, else by data."""
        if isinstance(x, Literal):
            return self.fill(op.result.type, element_of(x) or b"")  # type: ignore[arg-type]
        shape, t = _tensor(x).static_shape, _tensor(indices)
        if (look := self.regular(op.operands[1], t.static_shape)) is not None:
            first, steps = look
            n = t.rank
            cuts = (tuple(zip(t.static_shape, steps, strict=True)) or ((1, 1),), *(((k, 1),) for k in shape[1:]))
            groups = (*(((0, i),) for i in range(n)), *(((d, 0),) for d in range(1, len(shape))))
            spots = (first, *(Spot(),) * (len(shape) - 1))
            return self.seen(TAKE, Look(spots, cuts, groups), x, indices, name=op.result.name)
        return self.b.op(TAKE, x, self.cast(indices, SI32), name=op.result.name)

    def regular(self, x: Operand, shape: Sequence[int]) -> tuple[Spot, tuple[int, ...]] | None:
        """Where indices begin and how far apart they are along each axis; None where they are not so, or data."""
        total = prod(shape)
        if not total or total > 1 << 16:
            return None
        first = self.number(x, 0)
        if first is None and self.known(x) is None:
            return None
        if total == 1 and first is not None:
            known = _integer(first)
            return (Spot((), known) if known is not None else Spot((), 0, ((first, 1),))), (1,) * len(shape)  # type: ignore[arg-type]
        if (array := self.known(x)) is not None:
            values = [int(n) for n in array.reshape(-1)]
        else:
            found = [_integer(e) if (e := self.number(x, i)) is not None else None for i in range(total)]
            if None in found:
                return None
            values = found  # type: ignore[assignment]
        steps = tuple(values[prod(shape[d + 1 :])] - values[0] if n > 1 else 1 for d, n in enumerate(shape))
        for i, value in enumerate(values):
            if value != values[0] + sum(k * s for k, s in zip(_unraveled(i, shape), steps, strict=True)):
                return None
        return (Spot((), values[0]), steps) if min(steps) > 0 else None

    # Order

    def top_k(self, op: Op, x: Operand) -> list[Operand]:
        """The first of what is ordered, and where they were."""
        axis, k, t = op.attr("axis") % _tensor(x).rank, op.attr("k"), _tensor(x)
        places = self.ranks([x], axis, op.attr("largest"))
        count = self.b.op("iota", shape=t.shape, dtype=SI32, axis=axis)
        found, where = self.ordered(x, places, axis, k), self.ordered(count, places, axis, k)
        return [found, self.cast(where, op.attr("indices_dtype"))]

    def sort(self, op: Op, *xs: Operand) -> list[Operand]:
        """All operands in the order of the keys."""
        axis, n = op.attr("axis") % _tensor(xs[0]).rank, op.attr("keys")
        places = self.ranks(xs[:n], axis, op.attr("descending"))
        return [self.ordered(x, places, axis, _static(x)[axis]) for x in xs]

    def ranks(self, keys: Sequence[Operand], axis: int, descending: bool) -> Value:
        """The place of every element along an axis, which is put last: how many come before it. In f32."""
        b, rank = self.b.op, _tensor(keys[0]).rank
        perm = [*(d for d in range(rank) if d != axis), axis]
        shape = tuple(_static(keys[0])[d] for d in perm)
        pairs = (*shape, shape[-1])
        one, zero = (self.fill(tensor(F32, pairs), _bytes(n)) for n in (1.0, 0.0))
        own, other = (b("iota", shape=pairs, dtype=SI32, axis=d) for d in (rank - 1, rank))
        before: Operand = b("select", b("compare_lt", other, own), one, zero)
        for x in reversed(keys):
            x = self.cast(x, SI32) if _dtype(x) is I1 else x
            key = self.transposed(x, perm)
            mine = b("broadcast_to", b("reshape", key, new_shape=(*shape, 1)), result_shape=pairs)
            yours = b("broadcast_to", b("reshape", key, new_shape=(*shape[:-1], 1, shape[-1])), result_shape=pairs)
            first = b("select", b("compare_gt" if descending else "compare_lt", yours, mine), one, zero)
            same = b("select", b("compare_eq", yours, mine), one, zero)
            if _dtype(x).is_float:  # a NaN is the largest
                nan = [b("select", b("compare_ne", v, v), one, zero) for v in (mine, yours)]
                more, less = nan if not descending else nan[::-1]
                first = b("maximum", first, b("maximum", b("sub", more, less), zero))
                same = b("maximum", same, b("mul", *nan))
            before = b("add", first, b("mul", same, before))
        return b("reduce_sum", self.part_by_part("reduce_sum", before, rank), axes=(rank,), keepdims=False)

    def ordered(self, x: Operand, places: Value, axis: int, k: int) -> Operand:
        """The elements of `x` whose places are under `k`, in order."""
        b, t, shape = self.b.op, _tensor(x), _static(places)
        if t.dtype is I1:
            found = self.ordered(self.cast(x, SI32), places, axis, k)
            return self.cast(found, I1)
        pairs, rank = (*shape[:-1], k, shape[-1]), t.rank
        perm = [*(d for d in range(rank) if d != axis), axis]
        between = (*shape[:-1], 1, shape[-1])
        at = b("broadcast_to", b("reshape", places, new_shape=between), result_shape=pairs)
        here = b("compare_eq", at, b("iota", shape=pairs, dtype=F32, axis=rank - 1))
        return self.one_of(self.transposed(x, perm), here, perm)

    def one_of(self, x: Operand, here: Operand, perm: Sequence[int]) -> Operand:
        """Of `x`, whose last axis is the one that `perm` put there, the element that the mask `here` [..., k, n] holds for."""
        b, t, pairs = self.b.op, _tensor(x), _static(here)
        own = b("broadcast_to", b("reshape", x, new_shape=(*pairs[:-2], 1, pairs[-1])), result_shape=pairs)
        kept = b("select", here, own, self.fill(tensor(t.dtype, pairs), _identity("max", t.dtype)))
        made = b("reduce_max", self.part_by_part("reduce_max", kept, t.rank), axes=(t.rank,), keepdims=False)
        return self.transposed(made, [perm.index(d) for d in range(t.rank)])

    def gather(self, op: Op, x: Operand, indices: Operand) -> Operand:
        """Elements along an axis by data."""
        b, t, axis = self.b.op, _tensor(x), op.attr("axis") % _tensor(x).rank
        if t.dtype is I1:
            x = self.cast(x, SI32)
        perm = [*(d for d in range(t.rank) if d != axis), axis]
        rows, at = self.transposed(x, perm), self.transposed(self.cast(indices, SI32), perm)
        pairs = (*_static(at), _static(rows)[-1])
        spread = b("broadcast_to", b("reshape", at, new_shape=(*_static(at), 1)), result_shape=pairs)
        here = b("compare_eq", spread, b("iota", shape=pairs, dtype=SI32, axis=t.rank))
        return self.cast(self.one_of(rows, here, perm), t.dtype, op.result.name)

    def running(self, op: Op, x: Operand) -> Operand:
        """The sum or extreme of what comes before every element, itself included or not."""
        b, t, axis, kind = self.b.op, _tensor(x), op.attr("axis") % _tensor(x).rank, op.defn.short.removeprefix("cum")
        accum = _accumulator(t.dtype) if kind == "sum" else t.dtype
        perm = [*(d for d in range(t.rank) if d != axis), axis]
        rows = self.transposed(self.cast(x, accum), perm)
        shape = _static(rows)
        pairs = (*shape, shape[-1])
        own, other = (b("iota", shape=pairs, dtype=SI32, axis=d) for d in (t.rank - 1, t.rank))
        compare = ("compare_gt" if op.attr("exclusive") else "compare_ge") if op.attr("reverse") else (
            "compare_lt" if op.attr("exclusive") else "compare_le"
        )  # fmt: skip
        spread = b("broadcast_to", b("reshape", rows, new_shape=(*shape[:-1], 1, shape[-1])), result_shape=pairs)
        kept = b("select", b(compare, other, own), spread, self.fill(tensor(accum, pairs), _identity(kind, accum)))
        made = b(f"reduce_{kind}", self.part_by_part(f"reduce_{kind}", kept, t.rank), axes=(t.rank,), keepdims=False)
        return self.cast(self.transposed(made, [perm.index(d) for d in range(t.rank)]), t.dtype, op.result.name)

    # Control flow

    def scan(self, op: Op, *operands: Operand) -> list[Operand]:
        """A loop over the leading extent, whose outputs are parts of memory."""
        body, count = op.regions[0], op.attr("carry_count")
        steps = _static(operands[count])[0]
        counter = Value(tensor(SI32, ()), self.b.name("step"))
        self.outline.scalars.add(counter)
        self.bounded[counter] = steps - 1
        outputs = []
        for x in body.results[count:]:
            t = operand_type(x)
            require(isinstance(t, TensorType), NOT_TRANSLATABLE, "a tuple is not a tile")
            assert isinstance(t, TensorType)
            outputs.append(self.memory(t.with_shape((steps, *t.static_shape)), "stack"))
        with self.looped(body, op, operands[:count]) as carried:
            for p, x in zip(body.params[count:], operands[count:], strict=True):
                shape = _static(x)
                one = self.part(x, [Spot((), 0, ((counter, 1),)), *(Spot(),) * (len(shape) - 1)], (1, *shape[1:]), p.name)
                self.values[p] = self.b.op("reshape", one, new_shape=shape[1:], name=p.name)
            self.block(body)
            for memory, x in zip(outputs, body.results[count:], strict=True):
                made = self.operand(x)
                one = self.b.op("reshape", made, new_shape=(1, *_static(made)))
                self.write(memory, one, [Spot((), 0, ((counter, 1),)), *(Spot(),) * len(_static(made))])
        items, results = carried
        self.add(Loop(counter, _index(0, SI32), _index(steps, SI32), 1, items, op.loc))
        return [*results, *outputs]

    @contextmanager
    def looped(self, body: Region, op: Op, inits: Sequence[Operand]) -> Iterator[tuple[list[Item], list[Operand]]]:
        """The body of a loop, whose first parameters and results are what is carried: in memory, where it changes."""
        results: list[Operand] = []
        changing: list[tuple[Value, Operand]] = []
        for p, x, new in zip(body.params, inits, body.results, strict=False):
            if new is p or p in self.counters:
                results.append(self.counters.get(p, x))
                if new is p:
                    self.values[p] = x
                continue
            require(not (reason := unfit(p.type)), NOT_TRANSLATABLE, reason)
            memory = self.memory(p.type, p.name)
            self.write(memory, x)
            self.values[p] = memory
            results.append(memory)
            changing.append((memory, new))
        items: list[Item] = []
        with self.inside() as inner:
            yield items, results
            memories = {m for m, _ in changing}
            kept = []
            for memory, x in changing:
                made = self.operand(x)
                if self.outline.lost.intersection(values_of([made])):
                    raise _Lost
                base, path = self.outline.base(made, ())
                if base in memories and (base is not memory or path):  # another one, which may be written before
                    made = self.b.op("stop_gradient", made)
                    self.outline.kept.add(made)
                kept.append((memory, made))
            for memory, made in kept:
                if made is not memory:
                    self.write(memory, made)
            items.extend(inner)

    def while_(self, op: Op, *operands: Operand) -> list[Operand]:
        """A loop that counts."""
        condition, body = op.regions
        found = self.counts(condition, body, operands)
        message = "how often the loop runs is data: PTO has no loop that ends by what is in memory"
        require(found is not None, NOT_TRANSLATABLE, message)
        assert found is not None
        k, mode, bound, step = found
        lower = self.number(operands[k])
        limit = self.number(operands[bound] if isinstance(bound, int) else bound)
        require(lower is not None and limit is not None, NOT_TRANSLATABLE, message)
        assert lower is not None and limit is not None
        t = operand_type(lower)
        assert isinstance(t, TensorType)
        if mode in ("le", "ge"):
            limit = self.arithmetic("add", limit, _index(1 if mode == "le" else -1, t.dtype))
        low, high = (lower, limit) if step > 0 else (limit, lower)
        more = self.arithmetic("add", self.arithmetic("sub", high, low), _index(abs(step) - 1, t.dtype))
        trips = self.arithmetic("maximum", self.arithmetic("div", more, _index(abs(step), t.dtype)), _index(0, t.dtype))
        last = self.arithmetic("add", lower, self.arithmetic("mul", trips, _index(step, t.dtype)))
        counter = Value(t, self.b.name(body.params[k].name))
        self.outline.scalars.add(counter)
        self.counters[body.params[k]] = last
        with self.looped(body, op, operands) as carried:
            at = counter
            if step < 0:
                at = self.arithmetic("add", lower, self.arithmetic("mul", counter, _index(step, t.dtype)))  # type: ignore[assignment]
            self.values[body.params[k]] = at
            self.block(body)
        items, results = carried
        first, end = (lower, limit) if step > 0 else (_index(0, t.dtype), trips)
        if (n := _integer(limit)) is not None and step > 0:
            self.bounded[counter] = n - 1
        self.add(Loop(counter, first, end, max(step, 1), items, op.loc))
        return results

    def counts(self, condition: Region, body: Region, operands: Sequence[Operand]) -> tuple[int, str, int | Literal, int] | None:
        """Which carried value of a loop counts, how it is compared with what, and its step; None where none does. What it is
        compared with is a literal, or a value that is carried and stays."""
        flag, params = condition.results[0], condition.params
        if list(condition.results[1:]) != params or not isinstance(flag, Value) or flag.op is None:
            return None
        mode = _COMPARISONS.get(flag.op.defn.short)
        if mode is None:
            return None
        a, b = flag.op.operands
        for x, y, turned in ((a, b, False), (b, a, True)):
            if not isinstance(x, Value) or x not in params:
                continue
            k = params.index(x)
            mode = _TURNED[mode] if turned else mode
            bound: int | Literal | None = literal_of(y)
            if isinstance(y, Value) and y in params and body.results[params.index(y)] is body.params[params.index(y)]:
                bound = params.index(y)
            step = _step(body.params[k], body.results[k])
            good = {"lt": 1, "le": 1, "gt": -1, "ge": -1}.get(mode, step)
            if bound is not None and step and (step > 0) == (good > 0) and (mode != "ne" or abs(step) == 1):
                return k, mode, bound, step
        return None

    def cond(self, op: Op, flag: Operand, *operands: Operand) -> list[Operand]:
        """A branch by a scalar; by data both, of which one is chosen element by element."""
        known = self.number(op.operands[0])
        blocks, made = list[list[Item]](), list[list[Operand]]()
        if known is None:
            for region in op.regions:
                self.values.update(zip(region.params, operands, strict=True))
                self.block(region)
                made.append([self.operand(x) for x in region.results])
            return [self.chosen(flag, a, b) for a, b in zip(*made, strict=True)]
        if isinstance(known, Literal):
            region = op.regions[0 if known.data and known.data[0] else 1]
            self.values.update(zip(region.params, operands, strict=True))
            self.block(region)
            return [self.operand(x) for x in region.results]
        memories = []
        for x in op.regions[0].results:
            t = operand_type(x)
            require(not (reason := unfit(t)), NOT_TRANSLATABLE, reason)
            memories.append(self.memory(t, "either"))
        for region in op.regions:
            self.values.update(zip(region.params, operands, strict=True))
            with self.inside() as items:
                self.block(region)
                for memory, x in zip(memories, region.results, strict=True):
                    if self.outline.lost.intersection(values_of([self.operand(x)])):
                        raise _Lost
                    self.write(memory, self.operand(x))
                blocks.append(items)
        self.add(Branch(known, blocks[0], blocks[1], op.loc))
        return list(memories)

    def chosen(self, flag: Operand, a: Operand, b: Operand) -> Operand:
        """One of two values by a mask of rank 0."""
        if a is b:
            return a
        if self.outline.lost.intersection(values_of([a, b])):
            raise _Lost
        return self.b.op("select", self.b.op("broadcast_to", flag, result_shape=_tensor(a).shape), a, b)

    # Ops made of others

    def approximation(self, op: Op, x: Operand) -> Operand:
        """A function of floats, in f32."""
        made = APPROXIMATIONS[op.defn.short](self.b, self.cast(x, F32))
        if _dtype(op.result) is not F32:
            return self.cast(made, _dtype(op.result), op.result.name)
        made.name = self.b.name(op.result.name)
        return made

    # Steps of quantized numbers

    def quantize(self, op: Op, x: Operand) -> Operand:
        """`x / scale` rounded to steps."""
        scales, axis, to = op.attr("scales"), op.attr("axis"), op.attr("output_dtype")
        if not scales:
            return self.cast(x, to, op.result.name)
        high, low = self.product_of(self.cast(x, F32), None, [1 / s for s in scales], axis)
        if to.is_float:
            return self.cast(self.b.op("add", high, low), to, op.result.name)
        return self.steps(high, low, op.attr("zero_points"), axis, to, op.result.name)

    def dequantize(self, op: Op, x: Operand) -> Operand:
        """The real numbers of quantized steps."""
        scales, axis, to = op.attr("scales"), op.attr("axis"), op.attr("output_dtype") or F32
        if not scales:
            return self.cast(x, to, op.result.name)
        high, low = self.product_of(*self.centered(x, op.attr("zero_points"), axis), scales, axis)
        return self.cast(self.b.op("add", high, low), to, op.result.name)

    def requantize(self, op: Op, x: Operand) -> Operand:
        """Steps in other steps."""
        scales, others, axis, to = op.attr("scales"), op.attr("output_scales"), op.attr("axis"), op.attr("output_dtype")
        if not (scales or others):
            return self.cast(x, to, op.result.name)
        n = max(len(scales), len(others))
        pairs = zip(scales or (1.0,) * n, others or (1.0,) * n, strict=True)
        factors = [a / b for a, b in pairs]
        high, low = self.product_of(*self.centered(x, op.attr("zero_points"), axis), factors, axis)
        return self.steps(high, low, op.attr("output_zero_points"), axis, to, op.result.name)

    def centered(self, x: Operand, zero_points: Sequence[int], axis: int | None) -> tuple[Operand, Operand]:
        """Integers less their zero point, as two floats that add up to them."""
        t = _tensor(x)
        whole = self.cast(x, SI32)
        if any(zero_points):
            whole = self.b.op("sub", whole, self.laid(zero_points, SI32, axis, t))
        high = self.cast(whole, F32)
        if t.dtype.bits <= 16:
            return high, self.fill(t.with_dtype(F32), bytes(4))
        return high, self.cast(self.b.op("sub", whole, self.cast(high, SI32)), F32)

    def laid(self, values: Sequence[Any], dtype: DType, axis: int | None, t: TensorType) -> Operand:
        """Numbers along an axis of a tensor."""
        table = self.table(values, dtype, "steps")
        if isinstance(table, Literal):
            return self.fill(t.with_dtype(dtype), element_of(table) or b"")
        shape = tuple(len(values) if axis is not None and d == axis % t.rank else 1 for d in range(t.rank))
        return self.b.op("broadcast_to", self.b.op("reshape", table, new_shape=shape), result_shape=t.shape)

    def product_of(self, x: Operand, rest: Operand | None, factors: Sequence[float], axis: int | None) -> tuple[Operand, Operand]:
        """`(x + rest) * factor` as two f32 that add up to it, about twice as precise as one (Dekker)."""
        t = _tensor(x)
        b = self.b.op
        near = [_f32(f) for f in factors]
        high, low = (self.laid(values, F32, axis, t) for values in (near, [f - n for f, n in zip(factors, near, strict=True)]))
        top = b("mul", x, high)
        x1, x2 = self.halves(x)
        y1, y2 = self.halves(high)
        error = b("sub", b("mul", x1, y1), top)
        for p, q in ((x1, y2), (x2, y1), (x2, y2)):
            error = b("add", error, b("mul", p, q))
        error = b("add", error, b("mul", x, low))
        if rest is not None and not isinstance(rest, Literal):
            error = b("add", error, b("mul", rest, high))
        return top, error

    def halves(self, x: Operand) -> tuple[Operand, Operand]:
        """An f32 as the sum of two of half as many digits (Veltkamp)."""
        t = _tensor(x)
        if isinstance(x, Literal):
            (value,) = unpack("<f", element_of(x) or b"")
            near = _f32(_f32(4097.0 * value) - _f32(_f32(4097.0 * value) - value))
            return self.fill(t, _bytes(near)), self.fill(t, _bytes(value - near))
        much = self.b.op("mul", x, self.fill(t, _bytes(4097.0)))
        first = self.b.op("sub", much, self.b.op("sub", much, x))
        return first, self.b.op("sub", x, first)

    def steps(self, high: Operand, low: Operand, zero_points: Sequence[int], axis: int | None, to: DType, name: str) -> Operand:
        """The sum of two floats as the nearest steps, ties to even, saturated."""
        t, b = _tensor(high), self.b.op
        one, half, zero = (self.fill(t, _bytes(n)) for n in (1.0, 0.5, 0.0))
        near = b("round_even", high)
        rest = b("sub", high, near)
        for sign, compare, more in (("sub", "compare_gt", "add"), ("add", "compare_lt", "sub")):
            over = b(compare, b("add", b(sign, rest, half), low), zero)
            moved = b("select", over, b(more, near, one), near)
            near, rest = moved, b("select", over, zero, rest)
        if any(zero_points):
            near = b("add", near, self.laid([float(z) for z in zero_points], F32, axis, t))
        return self.cast(near, to, name)

    def cast(self, x: Operand, dtype: DType, name: str = "") -> Value:
        """`x` in other elements."""
        if _dtype(x) is dtype and isinstance(x, Value):
            return x
        return self.b.op("cast", x, dtype=dtype, name=name)

    def reduction(self, op: Op, x: Operand) -> Value:
        """One axis after the other, from the last; in the accumulator's elements where the result is not rounded alone."""
        t = _tensor(x)
        axes = sorted({a % t.rank for a in op.attr("axes")}, reverse=True)
        sums, to = op.defn.short in ("reduce_sum", "reduce_prod"), _dtype(op.result)
        accum = (op.attr("accum_dtype") or (F32 if t.dtype.is_float and t.dtype.bits < 64 else t.dtype)) if sums else t.dtype
        if accum is not t.dtype and (len(axes) > 1 or to is not t.dtype or accum is not F32):
            x = self.cast(x, accum)
        for a in axes:
            x = self.part_by_part(op.defn.short, x, a)
            x = self.b.op(op.defn.short, x, axes=(a,), keepdims=op.attr("keepdims"), name=op.result.name)
        return self.cast(x, to, op.result.name)

    def part_by_part(self, short: str, x: Operand, axis: int) -> Operand:
        """`x`, whose extent no block has all of, with that of its parts reduced."""
        shape = _tensor(x).static_shape
        longest = self.target.capacity["Vec"] // ALIGNMENT
        if not _dtype(x).is_float:  # rows of integers are turned
            longest //= 3
        n = shape[axis]
        if n <= longest:
            return x
        parts = next((k for k in range(longest, 1, -1) if n % k == 0 and n // k <= longest), 0)
        if not parts:  # what is missing to a number with such parts changes nothing
            parts = -(-n // -(-n // longest))
            more = [-n % parts if d == axis else 0 for d in range(len(shape))]
            kind, none = short.removeprefix("reduce_"), [0] * len(shape)
            x = self.padded(x, none, more, none, _identity(kind, _dtype(x)), "padded")
            shape, n = _tensor(x).static_shape, n + more[axis]
        split = self.b.op("reshape", x, new_shape=(*shape[:axis], n // parts, parts, *shape[axis + 1 :]))
        return self.b.op(short, split, axes=(axis + 1,), keepdims=False)

    def extreme(self, op: Op, x: Operand) -> Operand:
        """The first place of the largest or smallest element: as it is, where tiles have that; else the least of all places where
        that element is."""
        t = _tensor(x)
        axis, short = op.attr("axis") % t.rank, op.defn.short.removeprefix("arg")
        n = t.static_shape[axis]
        if t.dtype.is_float and n <= self.target.capacity["Vec"] // ALIGNMENT:
            return self.copy(op, [x])
        b = self.b.op
        best = b(f"reduce_{short}", self.part_by_part(f"reduce_{short}", x, axis), axes=(axis,), keepdims=False)
        kept = tuple(1 if d == axis else k for d, k in enumerate(t.static_shape))
        best = b("broadcast_to", b("reshape", best, new_shape=kept), result_shape=t.shape)
        count, none = b("iota", shape=t.shape, dtype=SI32, axis=axis), _index(n, SI32, t.static_shape)
        where = b("select", b("compare_eq", x, best), count, none)
        if t.dtype.is_float:  # a NaN wins
            where = b("select", b("compare_ne", x, x), count, where)
        first = b("reduce_min", self.part_by_part("reduce_min", where, axis), axes=(axis,), keepdims=False)
        made = b("reshape", first, new_shape=op.result.type.static_shape)  # type: ignore[attr-defined]
        return self.cast(made, _dtype(op.result), op.result.name)

    def every(self, op: Op, x: Operand) -> Operand:
        """Whether all, or some, of a mask hold: the smallest or largest of zeros and ones."""
        require(_dtype(x) is I1, NOT_TRANSLATABLE, f"no tile op does what {op.defn.short} does")
        short, made = "reduce_min" if op.defn.short == "reduce_and" else "reduce_max", self.cast(x, F32)
        for a in sorted({a % _tensor(x).rank for a in op.attr("axes")}, reverse=True):
            made = self.b.op(short, self.part_by_part(short, made, a), axes=(a,), keepdims=op.attr("keepdims"))
        return self.cast(made, I1, op.result.name)

    def logical(self, op: Op, *xs: Operand) -> Operand:
        """Bits of masks by choice; those of numbers are ops of tiles."""
        if _dtype(xs[0]) is not I1:
            return self.copy(op, list(xs))
        short, a, b = op.defn.short, xs[0], xs[-1]
        if short == "bitwise_xor":
            return self.b.op("compare_ne", self.cast(a, F32), self.cast(b, F32), name=op.result.name)
        if short == "bitwise_not":
            return self.b.op(
                "compare_eq", self.cast(a, F32), self.fill(_tensor(a).with_dtype(F32), bytes(4)), name=op.result.name
            )
        chosen = (a, b, a) if short == "bitwise_and" else (a, a, b)
        return self.b.op("select", *chosen, name=op.result.name)

    def sign(self, op: Op, x: Operand) -> Operand:
        """-1, 0 or 1; what is no number stays."""
        t = _tensor(x)
        one, less, zero = (
            self.fill(t, self.element(numbers.Scalar(numbers.FLOAT if t.dtype.is_float else numbers.SIGNED, v), t.dtype))
            for v in ((1.0, -1.0, 0.0) if t.dtype.is_float else (1, -1, 0))
        )
        made = self.b.op("select", self.b.op("compare_lt", x, zero), less, x) if t.dtype.is_signed or t.dtype.is_float else x
        return self.b.op("select", self.b.op("compare_gt", x, zero), one, made, name=op.result.name)

    def finite(self, op: Op, x: Operand) -> Operand:
        """Whether the absolute is less than infinity."""
        whole = self.fill(_tensor(x), _identity("min", _dtype(x)))
        return self.b.op("compare_lt", self.b.op("abs", x), whole, name=op.result.name)

    def product(self, op: Op, a: Operand, b: Operand) -> Value:
        """Both operands with the inner extents where the matrix unit wants them: [batch, M, K] by [batch, K, N]."""
        batch_a, batch_b, inner_a, inner_b = (
            [x % _tensor(v).rank for x in op.attr(name)]
            for name, v in (("batch_lhs", a), ("batch_rhs", b), ("contract_lhs", a), ("contract_rhs", b))
        )
        rows = [d for d in range(_tensor(a).rank) if d not in (*batch_a, *inner_a)]
        columns = [d for d in range(_tensor(b).rank) if d not in (*batch_b, *inner_b)]
        left, right = self.transposed(a, [*batch_a, *rows, *inner_a]), self.transposed(b, [*batch_b, *inner_b, *columns])
        lead, n, rank = tuple(range(len(batch_a))), len(inner_a), _tensor(a).rank
        extents = [prod(_tensor(v).static_shape[d] for d in axes) for v, axes in ((a, rows), (b, columns), (a, inner_a))]
        if not rows or min(extents[1:]) == 1:
            right = self.transposed(b, [*batch_b, *columns, *inner_b])
            return self.sum_of_products(op, left, right, (len(lead), len(rows), len(columns)))
        left, right = self.without(left, range(rank - n, rank)), self.without(right, range(len(lead), _tensor(right).rank))
        rank, n = _tensor(left).rank, sum(_tensor(a).shape[d] != 1 for d in inner_a)
        attrs: dict[str, Any] = {"accum_dtype": op.attr("accum_dtype"), "out_dtype": op.attr("out_dtype")}
        attrs |= {"contract_lhs": tuple(range(rank - n, rank)), "contract_rhs": tuple(range(len(lead), len(lead) + n))}
        made = self.b.op("dot_general", left, right, batch_lhs=lead, batch_rhs=lead, **attrs, name=op.result.name)
        whole = _tensor(op.result).static_shape
        return made if _tensor(made).shape == whole else self.b.op("reshape", made, new_shape=whole, name=op.result.name)

    def without(self, x: Operand, axes: Container[int]) -> Operand:
        """`x` without those of `axes` that have an extent of 1: what a matrix unit loads ends in what it multiplies."""
        shape = _tensor(x).static_shape
        kept = tuple(n for d, n in enumerate(shape) if n != 1 or d not in axes)
        return x if kept == shape else self.b.op("reshape", x, new_shape=kept)

    def sum_of_products(self, op: Op, a: Operand, b: Operand, counts: tuple[int, int, int]) -> Value:
        """[batch, M, K] times [batch, N, K], element by element, summed over K: what has one row or column is no matrix."""
        batch, rows, columns = counts
        shape, other = _tensor(a).static_shape, _tensor(b).static_shape
        lead, m, n, k = shape[:batch], shape[batch : batch + rows], other[batch : batch + columns], shape[batch + rows :]
        accum = op.attr("accum_dtype") or (F32 if _dtype(a).is_float and _dtype(a).bits < 64 else _dtype(a))
        factors = []
        for x, own in ((a, (*lead, *m, *(1 for _ in n), *k)), (b, (*lead, *(1 for _ in m), *n, *k))):
            upright = self.b.op("reshape", self.cast(x, accum), new_shape=own)
            factors.append(self.b.op("broadcast_to", upright, result_shape=(*lead, *m, *n, *k)))
        total: Value = self.b.op("mul", *factors)
        for axis in range(total.type.rank - 1, len((*lead, *m, *n)) - 1, -1):  # type: ignore[attr-defined]
            total = self.b.op("reduce_sum", self.part_by_part("reduce_sum", total, axis), axes=(axis,), keepdims=False)
        total = self.cast(total, _dtype(op.result))
        total.name = self.b.name(op.result.name)
        return total

    def transposed(self, x: Operand, perm: list[int]) -> Operand:
        return x if perm == sorted(perm) else self.b.op("transpose", x, perm=tuple(perm))


_OF_PLACES = frozenset(
    (*_ARITHMETIC, "select", "clamp", "reshape", "broadcast_to", "transpose", "slice", "stop_gradient")
)  # places of places
_READ_PLACES = frozenset((*_COMPARISONS, "compare_eq", TAKE, "gather"))


def _places(block: Region, needed: Container[Op]) -> set[Value]:
    """The values of type si64 that are nothing but places: they end in indices, comparisons, and places."""
    users: dict[Value, list[Op]] = {}
    for op in block.body:
        if op in needed:
            for x in op.values():
                users.setdefault(x, []).append(op)
    found: set[Value] = set()
    for v in (*(op.result for op in reversed(block.body)), *block.params):
        wide = isinstance(v.type, TensorType) and v.type.dtype is SI64 and v not in block.results
        if wide and all(_places_only(v, user, found) for user in users.get(v, ())):
            found.add(v)
    return found


def _places_only(v: Value, user: Op, found: Container[Value]) -> bool:
    if user.defn.short in (TAKE, "gather"):
        return user.operands[0] is not v
    return user.defn.short in _READ_PLACES or (user.defn.short in _OF_PLACES and user.result in found)


class _Lost(Exception):
    """What is read was refused before."""


_RULES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(REDUCTIONS, _Preparation.reduction),
    **dict.fromkeys(APPROXIMATIONS, _Preparation.approximation),
    "dot_general": _Preparation.product,
    "slice": _Preparation.slice,
    "dynamic_slice": _Preparation.dynamic_slice,
    "dynamic_update_slice": _Preparation.update,
    "concat": _Preparation.concat,
    "pad": _Preparation.pad,
    "extract_patches": _Preparation.patches,
    "reduce_window": _Preparation.windows,
    "reshape": _Preparation.reshape,
    "tile": _Preparation.tiled,
    TAKE: _Preparation.take,
    "quantize": _Preparation.quantize,
    "dequantize": _Preparation.dequantize,
    "requantize": _Preparation.requantize,
    **dict.fromkeys(POSITIONS, _Preparation.extreme),
    **dict.fromkeys(("reduce_and", "reduce_or"), _Preparation.every),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"), _Preparation.logical),
    **dict.fromkeys(("cumsum", "cummax", "cummin"), _Preparation.running),
    "sign": _Preparation.sign,
    "is_finite": _Preparation.finite,
    "gather": _Preparation.gather,
    "top_k": _Preparation.top_k,
    "sort": _Preparation.sort,
    "scan": _Preparation.scan,
    "while": _Preparation.while_,
    "cond": _Preparation.cond,
}


def _prune(outline: Outline) -> None:
    """Drop what nothing reads, and what is written to memory that nothing reads."""
    writers: dict[Value, list[Op]] = {}
    for op in _ops(outline.items):
        if (write := outline.writes.get(op.result)) is not None:
            writers.setdefault(write.memory, []).append(op)
    live: set[Value] = set()
    todo = values_of(outline.results)
    todo += [v for item in _nested(outline.items) for v in values_of(_bounds(item))]
    while todo:
        v = todo.pop()
        if v not in live:
            live.add(v)
            for op in (*writers.get(v, ()), *([v.op] if v.op is not None else [])):
                live.add(op.result)
                look, write = outline.looks.get(op), outline.writes.get(op.result)
                spots = (*(look.first if look else ()), *(write.first if write else ()))
                todo += [*op.values(), *(v for s in spots for v, _ in s.shifts)]

    def kept(items: list[Item]) -> list[Item]:
        for item in items:
            for block in blocks(item):
                block[:] = kept(block)
        return [i for i in items if not isinstance(i, Op) or live.intersection(i.results)]

    outline.items = kept(outline.items)


def _nested(items: Sequence[Item]) -> Iterator[Loop | Branch]:
    for item in items:
        if not isinstance(item, Op):
            yield item
            for block in blocks(item):
                yield from _nested(block)


def _ops(items: Sequence[Item]) -> Iterator[Op]:
    yield from (i for i in items if isinstance(i, Op))
    for item in _nested(items):
        for block in blocks(item):
            yield from (i for i in block if isinstance(i, Op))


def _bounds(item: Loop | Branch) -> list[Operand]:
    return [item.lower, item.upper] if isinstance(item, Loop) else [item.condition]


def _needed(block: Region) -> set[Op]:
    """The ops that results come from."""
    found: set[Op] = set()
    todo = values_of(block.results)
    while todo:
        x = todo.pop()
        if isinstance(x, Value) and x.op is not None and x.op not in found:
            found.add(x.op)
            todo.extend(x.op.values())
    return found


def _fits(op: Op, operands: Sequence[Operand]) -> bool:
    """Whether tiles hold all that an op reads and makes; what is not so is refused as it is, by its own name."""
    types = [*map(operand_type, operands), *(t for v in op.results for t in _parts(v.type))]
    return not any(map(unfit, types))


def _parts(t: Type) -> Sequence[Type]:
    return t.elements if isinstance(t, TupleType) else (t,)


def _tensor(x: Operand) -> TensorType:
    t = x.type  # type: ignore[union-attr]
    assert isinstance(t, TensorType)
    return t


def _dtype(x: Operand) -> DType:
    return _tensor(x).dtype


def _static(x: Operand) -> tuple[int, ...]:
    t = operand_type(x)
    require(isinstance(t, TensorType), NOT_TRANSLATABLE, "a tuple is not a tile")
    require(not (reason := unfit(t)), NOT_TRANSLATABLE, reason)
    assert isinstance(t, TensorType)
    return t.static_shape


def _unraveled(at: int, shape: Sequence[int]) -> list[int]:
    found = []
    for n in reversed(shape):
        found.append(at % n)
        at //= n
    return found[::-1]


def _digits(look: Look, group: Sequence[tuple[int, int]], at: int) -> Iterator[tuple[tuple[int, int], int]]:
    """Where index `at` of a dimension that is seen is in the extents that it is a product of."""
    extents = [look.cuts[d][i][0] for d, i in group]
    return zip(group, _unraveled(at, extents), strict=True)


def _raveled(where: Sequence[int], shape: Sequence[int]) -> int:
    at = 0
    for i, n in zip(where, shape, strict=True):
        at = at * n + i
    return at


def _index(n: int, dtype: DType, shape: tuple[int, ...] = ()) -> Literal:
    """A literal integer."""
    return Literal(tensor(dtype, shape), n.to_bytes(dtype.size, "little", signed=True), bool(shape))


def _integer(x: Operand) -> int | None:
    """The number that a literal of integers is."""
    literal = x if isinstance(x, Literal) else None
    data = element_of(literal)
    if literal is None or data is None or not literal.type.dtype.is_integer:
        return None
    return int.from_bytes(data, "little", signed=True)


def _step(before: Value, after: Operand) -> int:
    """What is added to a value, 0 where that is not known."""
    if not isinstance(after, Value) or after.op is None or after.op.defn.short not in ("add", "sub"):
        return 0
    a, b = after.op.operands
    if after.op.defn.short == "add" and b is before:
        a, b = b, a
    n = _integer(literal) if a is before and (literal := literal_of(b)) is not None else None
    return 0 if n is None else n if after.op.defn.short == "add" else -n


def _accumulator(dtype: DType) -> DType:
    return F32 if dtype.is_float and dtype.bits < 64 else dtype


def _bytes(x: float) -> bytes:
    return pack("<f", x)


def _f32(x: float) -> float:
    found: float = unpack("<f", pack("<f", x))[0]
    return found


def _identity(short: str, dtype: DType) -> bytes:
    """What changes no sum, product, maximum or minimum."""
    if short == "sum":
        return bytes(dtype.size)
    if short == "prod":
        one = numbers.Scalar(numbers.FLOAT, 1.0) if dtype.is_float else numbers.Scalar(numbers.SIGNED, 1)
        return arrays.pack(numbers.element(one, dtype).reshape(1), dtype)
    if dtype.is_float:
        infinite = numbers.Scalar(numbers.FLOAT, float("-inf" if short == "max" else "inf"))
        return arrays.pack(numbers.element(infinite, dtype).reshape(1), dtype)
    n = dtype.min if short == "max" else dtype.max
    return n.to_bytes(dtype.size, "little", signed=dtype.min < 0)
