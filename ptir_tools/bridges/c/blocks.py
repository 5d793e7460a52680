"""The steps of a function and of its regions, each a block of loops that computes a value in memory.

A carry of a loop has a buffer; each iteration writes its successor elsewhere, then copies it. A carry that no iteration changes
is the operand itself. A parameter of a region is that buffer, an operand, or a slice of one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain

from ptir_tools.bridges.c.fusion import LOOKUPS, MAPS, MOVES, Rows, in_rows, static, stored
from ptir_tools.bridges.c.nest import Key, Nest, key
from ptir_tools.bridges.c.scalars import Helpers, memory
from ptir_tools.bridges.c.steps import SEVERAL, STEPS, fill
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import DType
from ptir_tools.core.ir import Element, Literal, Op, Operand, Region, Value
from ptir_tools.core.lazy import regex
from ptir_tools.core.source import Loc
from ptir_tools.core.types import Shape, TensorType, TupleType, Type
from ptir_tools.core.violations import Violation, require
from ptir_tools.dialects.ptir.ops.control import result_count, result_types
from ptir_tools.rewrite.vocabulary import tensor_type

Outputs = Mapping[Key, str]


def results_of(op: Op) -> list[Key]:
    """The results of a control-flow op."""
    count = result_count(op)
    return [op.result] if count == 1 else [(op.result, i) for i in range(count)]


def require_tensors(op: Op) -> None:
    """Raise Violation("NotTranslatable") where a region takes or returns a tuple."""
    types: list[Type] = [t for r in op.regions for t in (*(p.type for p in r.params), *r.result_types)]
    fits = all(isinstance(t, TensorType) for t in types)
    require(fits, "NotTranslatable", f"`{op.defn.short}`: a region takes or returns a tuple, and C has none")


_WORDS = """
auto break case char const continue default do double else enum extern float for goto if inline int long register restrict return
short signed sizeof static struct switch typedef union unsigned void volatile while bad arena main bool true false memcpy size_t
NULL NAN INFINITY weights seed own first other"""
_MATH = """
exp log tanh erf sqrt fabs floor ceil rint round fmod copysign sin cos tan asin acos atan atan2 sinh cosh asinh acosh atanh log1p
expm1 cbrt pow gamma lgamma j0 j1 jn y0 y1 yn abs index nextafter creal cimag cexp clog ctanh csin ccos ctan casin cacos catan
csinh ccosh casinh cacosh catanh csqrt cpow cabs carg conj cproj"""
RESERVED = frozenset((*_WORDS.split(), *_MATH.split(), *(f"{name}f" for name in _MATH.split())))
_OWN = regex(r"[itl]\d+|lanes\d+|table\d+|l|ptir_(?!main$).*")  # the names that this package makes


class Blocks:
    """Writes the steps of a function and of its regions."""

    def __init__(self, program: Program, diagnostics: Diagnostics) -> None:
        self.program, self.main, self.diagnostics = program, program.main, diagnostics
        self.helpers = Helpers()
        self.nest = Nest(self.helpers)
        self.taken = set(RESERVED)
        self.step = 0
        self.scratches: list[str] = []
        self.arena: dict[str, tuple[DType, Shape, int, int]] = {}  # by buffer: the steps of its first write and last read

    def c_name(self, text: str) -> str:
        """A new C name like `text`."""
        name = re.sub(r"\W", "_", text, flags=re.ASCII)
        if not name[:1].isalpha() or _OWN.fullmatch(name):
            name = f"v{name}"
        base, k = name, 0
        while name in self.taken:
            k += 1
            name = f"{base}_{k}"
        self.taken.add(name)
        return name

    def refuse(self, violation: Violation, loc: Loc) -> None:
        """Report what C cannot express."""
        self.diagnostics.violation(violation, loc)

    # Steps

    def block(self, block: Region, results: Sequence[tuple[Operand, str]]) -> None:
        """The steps of a block, which write results to the buffers next to them."""
        outputs, copies = dict[Key, str](), list[tuple[Operand, str]]()
        for x, name in results:
            v = x.value if isinstance(x, Element) else x
            if isinstance(v, Literal) or isinstance(x, Literal) or v.op is None or key(x) in outputs:
                copies.append((x, name))
            else:
                outputs[key(x)] = name
        self.checks(block)
        for step in in_rows(block, stored(block)):
            if isinstance(step, Rows):
                self.rows(step, outputs)
            elif step.defn.short in CONTROL:
                try:
                    CONTROL[step.defn.short](self, step, outputs)
                except Violation as violation:
                    self.refuse(violation, step.loc)
            else:
                self.values(step, outputs)
        for x, name in copies:
            self.copy(x, name)

    def copy(self, x: Operand, to: str) -> None:
        """A step that writes a value to a buffer."""
        self.leaf(self.main.loc, [to], lambda: fill(self.nest, x, to, tensor_type(x).dtype))

    def values(self, op: Op, outputs: Outputs) -> None:
        """A step that computes the results of an op, in the buffers of `outputs` or in new ones."""
        t = op.result.type
        types = list(t.elements) if isinstance(t, TupleType) else [t]
        keys: list[Key] = [(op.result, i) for i in range(len(types))] if isinstance(t, TupleType) else [op.result]
        to = [outputs.get(k) or self.reserved(op.result.name, part) for k, part in zip(keys, types, strict=True)]
        self.leaf(op.loc, to, lambda: self.emit(op, to))
        for k, name in zip(keys, to, strict=True):
            self.nest.put_in(k, name)

    def rows(self, group: Rows, outputs: Outputs) -> None:
        """A step that computes several values row by row; of those that nothing else reads, only a row is in memory."""
        n, to = self.nest, list[str]()
        for op in group.ops:
            t, lacks = tensor_type(op.result), len(group.shape) if op.result in group.own else 0
            if group.local(op):
                to.append("")
                continue
            to.append(name := outputs.get(op.result) or self.reserved(op.result.name, TensorType(t.dtype, t.shape[lacks:])))
            n.rowed[name] = lacks

        def emit() -> None:
            with n.loops(group.shape) as n.outer:
                for op, name in zip(group.ops, to, strict=True):
                    self.emit(op, [name])
                    if name:
                        n.put_in(op.result, name)
            n.outer, n.locals = (), {}

        self.leaf(group.ops[0].loc, to, emit)

    def reserved(self, name: str, t: Type) -> str:
        """A new buffer in the arena, live from the next step on."""
        assert isinstance(t, TensorType)
        name = self.c_name(name)
        self.arena[name] = (t.dtype, t.shape, self.step + 1, self.step + 1)
        return name

    def scratch(self, dtype: DType, shape: Shape) -> str:
        """A new buffer for the current step."""
        self.scratches.append(name := self.c_name("part"))
        self.arena[name] = (dtype, shape, self.step, self.step)
        return name

    def leaf(self, loc: Loc, to: Sequence[str], emit: Callable[[], None]) -> None:
        """One step: what `emit` writes, in a block that declares the buffers that it reads and those that it writes (`to`)."""
        self.step += 1
        n = self.nest
        n.read, self.scratches = {}, []
        lines, n.lines = n.lines, []
        try:
            with n.block(""):
                emit()
        except Violation as violation:
            self.refuse(violation, loc)
        body, n.lines = n.lines, lines
        here = [name for name in self.arena if name in n.read or name in to or name in self.scratches]
        self.live(here)
        n.lines += [body[0], *(f"@{n.depth} {name}" for name in here), *body[1:]]

    def live(self, names: Iterable[str]) -> None:
        """Keep buffers until the current step."""
        for name in names:
            dtype, shape, start, _ = self.arena[name]
            self.arena[name] = (dtype, shape, start, self.step)

    def checks(self, block: Region) -> None:
        """What the verifier left to the run: extents that fit."""
        n = self.nest
        for op in block.body:
            if op.defn.short in ("reshape", "slice", "dynamic_slice", "dynamic_update_slice") and isinstance(op.result, Value):
                x, out = tensor_type(op.operands[0]), tensor_type(op.result)
                if static(x.shape) and static(out.shape):
                    continue
                if op.defn.short == "reshape":
                    before, after = (" * ".join(map(n.extent, t.shape)) or "1" for t in (x, out))
                    conditions = [f"{before} != {after}"] if before != after else []
                else:
                    window = tensor_type(op.operands[1]) if op.defn.short == "dynamic_update_slice" else out
                    starts = op.attr("starts") if op.defn.short == "slice" else (0,) * x.rank
                    places = zip(starts, window.shape, x.shape, strict=True)
                    conditions = [f"{s} + {n.extent(w)} > {n.extent(d)}" for s, w, d in places if w != d]
                if conditions:
                    n.put(f"if ({' || '.join(conditions)})")
                    n.put("    return 3;")

    def emit(self, op: Op, to: Sequence[str]) -> None:
        """The loops of a step."""
        n, short = self.nest, op.defn.short
        if short in MAPS | MOVES | LOOKUPS:
            fill(n, op.result, to[0], tensor_type(op.result).dtype)
        elif short in SEVERAL:
            SEVERAL[short](n, op, to, self.scratch)
        else:
            STEPS[short](n, op, to[0])

    # Control flow

    def cond(self, op: Op, outputs: Outputs) -> None:
        """Both regions write the same buffers."""
        require_tensors(op)
        pred, *given = op.operands
        keys = results_of(op)
        names = [
            outputs.get(k) or self.reserved(op.result.name, tensor_type(x))
            for k, x in zip(keys, op.regions[0].results, strict=True)
        ]
        flag = self.flagged(pred)
        for region, head in zip(op.regions, (f"if ({flag})", "else"), strict=True):
            with self.nest.block(head):
                for p, x in zip(region.params, given, strict=True):
                    self.nest.alias(p, x)
                self.block(region, list(zip(region.results, names, strict=True)))
        for k, name in zip(keys, names, strict=True):
            self.nest.put_in(k, name)

    def flagged(self, x: Operand) -> str:
        """A variable with an i1 scalar."""
        flag = self.nest.name("t")
        self.nest.put(f"int {flag};")
        self.leaf(self.main.loc, [], lambda: self.nest.put(f"{flag} = {self.nest.element(x, ())} != 0;"))
        return flag

    def while_(self, op: Op, outputs: Outputs) -> None:
        """The body's region follows the test's, if its flag is true."""
        require_tensors(op)
        test, body = op.regions
        turns = ((test, test.results[1:]), (body, body.results))
        carries = self.carried(op, op.operands, turns, outputs)
        before, first = [*self.arena], self.step
        i = self.nest.name("i")
        with self.nest.block(f"for (int64_t {i} = 0;; {i}++)"), self.turn(i):
            self.nest.put(f"(void){i};")  # only random numbers need it
            self.iteration(test, test.results[1:], op.operands, carries, test.results[0])
            self.iteration(body, body.results, op.operands, carries)
        self.kept_alive(before, first)

    def scan(self, op: Op, outputs: Outputs) -> None:
        """A loop over the slices; each output is copied to its place."""
        require_tensors(op)
        n, count, (body,) = self.nest, op.attr("carry_count"), op.regions
        given, scanned = op.operands[:count], op.operands[count:]
        carries = self.carried(op, given, ((body, body.results[:count]),), outputs)
        stacked = zip(results_of(op)[count:], result_types(op)[count:], strict=True)
        stacks = [outputs.get(k) or self.reserved(op.result.name, t) for k, t in stacked]
        before, first = [*self.arena], self.step
        i = n.name("i")
        with n.block(f"for (int64_t {i} = 0; {i} < {n.extent(tensor_type(scanned[0]).shape[0])}; {i}++)"), self.turn(i):
            for p, x in zip(body.params[count:], scanned, strict=True):
                n.alias(p, x, (i,))
            self.iteration(body, body.results, given, [*carries, *stacks], row=i)
        self.kept_alive(before, first)
        for k, name in zip(results_of(op)[count:], stacks, strict=True):
            n.put_in(k, name)

    @contextmanager
    def turn(self, i: str) -> Iterator[None]:
        """The lines of an iteration, whose number is `i`."""
        outer = self.nest.turns
        self.nest.turns = (*outer, i)
        yield
        self.nest.turns = outer

    def carried(
        self, op: Op, given: Sequence[Operand], turns: Sequence[tuple[Region, Sequence[Operand]]], outputs: Outputs
    ) -> list[str]:
        """The buffers of the carries of a loop, with the operands in them; "" for one that no iteration changes."""
        names = list[str]()
        for i, (k, x) in enumerate(zip(results_of(op), given, strict=False)):
            same = all(results[i] is region.params[i] for region, results in turns)
            if same:
                self.nest.alias(k, x)
            name = outputs.get(k) or ("" if same else self.reserved(op.result.name, tensor_type(x)))
            if name:
                self.copy(x, name)
            if not same:
                self.nest.put_in(k, name)
            names.append("" if same else name)
        return names

    def iteration(
        self,
        region: Region,
        results: Sequence[Operand],
        given: Sequence[Operand],
        to: Sequence[str],
        going: Operand | None = None,
        row: str = "",
    ) -> None:
        """One iteration of a region: its results, then the copies to the buffers `to`. The loop ends if `going` is false, after
        the copies. Results after those of the carries are row `row` of their buffers."""
        n, count = self.nest, len(given)
        for p, x, name in zip(region.params, given, to, strict=False):
            n.put_in(p, name) if name else n.alias(p, x)
        changed = [(x, name, i >= count) for i, (x, name) in enumerate(zip(results, to, strict=True))
                   if name and (i >= count or x is not region.params[i])]  # fmt: skip
        self.step += 1
        parts = [self.reserved(f"{name}_next", tensor_type(x)) for x, name, _ in changed]
        self.block(region, [(x, part) for (x, _, _), part in zip(changed, parts, strict=True)])
        flag = "" if going is None else self.flagged(going)
        for (x, name, is_row), part in zip(changed, parts, strict=True):
            t = tensor_type(x)
            size = " * ".join(map(n.extent, t.shape)) or "1"
            place = f"{name} + {row} * ({size})" if is_row else name
            copied = f"memcpy({place}, {part}, sizeof({memory(t.dtype)}) * (size_t)({size}));"
            self.leaf(self.main.loc, [name, part], lambda line=copied: n.put(line))  # type: ignore[misc]
        ends = chain(["if (bad)", "    return bad;"], [f"if (!{flag})", "    break;"] if flag else [])
        for line in ends:
            n.put(line)

    def kept_alive(self, before: Sequence[str], first: int) -> None:
        """Keep the buffers from before a loop that it uses until its end."""
        self.live(name for name in before if self.arena[name][3] > first)


CONTROL: dict[str, Callable[[Blocks, Op, Outputs], None]] = {"cond": Blocks.cond, "while": Blocks.while_, "scan": Blocks.scan}
