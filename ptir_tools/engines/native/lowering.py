"""Fusion groups as tile programs: phases of instructions on one accumulator, and registers for other values.

A phase on elements ends where the result of its own reduction is needed; then comes a phase on values per row, then the next
on elements. Within a phase, an op takes an operand that was just computed from the accumulator.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence

from ptir_tools.core.dtypes import BF16, F16, SI8, UI8
from ptir_tools.core.ir import Kernel, Op, Value
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.types import TensorType
from ptir_tools.engines.native import fusion
from ptir_tools.engines.native.library import kernels

INSTRUCTION = 3  # bytes
ROUNDING = {F16: "nearest_f16", BF16: "nearest_bf16", SI8: "nearest_si8", UI8: "nearest_ui8"}


class Assembler:
    """A tile program under construction: its code, and the kinds of its registers, those of the arrays first."""

    def __init__(self, kinds: Sequence[int]) -> None:
        self.numbers = {name: i for i, name in enumerate(kernels().OPS)}
        self.kinds = bytearray(kinds)
        self.code = bytearray()

    def register(self, kind: int) -> int:
        """A new register."""
        self.kinds.append(kind)
        return len(self.kinds) - 1

    def emit(self, name: str, a: int = 0, b: int = 0) -> None:
        """One instruction."""
        self.code += bytes((self.numbers[name], a, b))


class _Node(NamedTuple):
    """The instruction (or none) for one value, `result`, its operands, and a rounding."""

    kernel: Kernel | None
    operands: list[Hashable]
    result: Hashable
    rounding: str | None
    level: int  # its phase: even phases are on elements, odd ones on rows

    @property
    def reduces(self) -> bool:
        return self.kernel is not None and self.kernel.role == "reduce"


def lowered(group: fusion.Group, outs: Sequence[Value], kinds: Sequence[int]) -> tuple[bytes, bytes]:
    """The code of a fusion group and the kinds of its registers; `kinds` are those of its arrays: the inputs, then `outs`."""
    program = _Phases(Assembler(kinds), list(_nodes(group, outs)), [*group.inputs], outs)
    return program.run()


def _nodes(group: fusion.Group, outs: Sequence[Value]) -> Iterator[_Node]:
    """The ops of a group with their phases. A reshape of a value per row is that value itself, or a copy for an output."""
    same = {op.result: op.operands[0] for op in group.ops if fusion.role(op) in ("reshape", "repeat")} if group.reduces else {}
    levels: dict[Hashable, int] = dict.fromkeys(group.inputs, 0)

    def node(kernel: Kernel | None, operands: list[Hashable], result: Hashable, rounding: str | None, rows: bool) -> _Node:
        first = max(map(levels.__getitem__, operands))
        made = _Node(kernel, operands, result, rounding, first + (first % 2 != rows))
        levels[result] = made.level + made.reduces
        return made

    for op in group.ops:
        result, kernel = op.results[0], op.defn.kernel
        rows = group.kinds[result] == fusion.ROWS
        if result in same:
            if result in outs:
                yield node(None, [_root(result, same)], result, None, rows)
            else:
                levels[result] = levels[_root(result, same)]
            continue
        operands: list[Hashable] = [_root(v, same) for v in op.values()] if same else [*op.values()]
        rounding = _rounding(op)
        assert kernel is not None
        if kernel.role != "reduce":
            yield node(kernel, operands, result, rounding, rows)
        elif rounding is None:
            yield node(kernel, operands, result, None, False)
        else:
            yield node(kernel, operands, (op, "exact"), None, False)
            yield node(None, [(op, "exact")], result, rounding, True)


def _root(v: object, same: Mapping[Value, object]) -> Hashable:
    while isinstance(v, Value) and v in same:
        v = same[v]
    return v


def _rounding(op: Op) -> str | None:
    """The instruction that rounds the result of `op` to its dtype."""
    t = op.result.type
    assert isinstance(t, TensorType) and op.defn.kernel is not None
    return None if op.defn.kernel.exact else ROUNDING.get(t.dtype)


class _Phases:
    """Converts the nodes of a program to instructions. `held` is the value in the accumulator; `home` has the registers of the
    others."""

    def __init__(self, program: Assembler, nodes: list[_Node], inputs: Sequence[Value], outs: Sequence[Value]) -> None:
        self.program = program
        self.nodes = nodes
        self.home: dict[Hashable, int] = {v: i for i, v in enumerate(inputs)}
        self.outs: dict[Hashable, int] = {v: len(inputs) + i for i, v in enumerate(outs)}
        self.uses = Counter(v for n in nodes for v in n.operands)
        self.last: dict[Hashable, int] = {}
        self.depth: dict[Hashable, int] = {}  # the length of the longest chain of nodes from a value
        for n in reversed(nodes):
            further = self.depth.setdefault(n.result, 0) + 1
            for v in n.operands:
                self.last[v] = max(n.level, self.last.get(v, n.level))
                self.depth[v] = max(further, self.depth.get(v, 0))
        self.held: Hashable = None
        self.level = 0
        self.reductions = 0

    def run(self) -> tuple[bytes, bytes]:
        for level in sorted({n.level for n in self.nodes}):
            self.level = level
            self.program.emit("on_rows" if self.level % 2 else "on_elements")
            self.held = None
            self.phase([n for n in self.nodes if n.level == self.level])
            self.keep()
        return bytes(self.program.code), bytes(self.program.kinds)

    def phase(self, nodes: list[_Node]) -> None:
        """Emit all nodes of a phase: first a node that uses the accumulator, else the one with the longest chain."""
        made = {n.result for n in nodes}
        missing = [made.intersection(n.operands) for n in nodes]
        waiting: dict[Hashable, list[int]] = {}
        for i, values in enumerate(missing):
            for v in values:
                waiting.setdefault(v, []).append(i)
        ready = [i for i, values in enumerate(missing) if not values]  # in order
        while ready:
            using = [i for i in ready if self.held in nodes[i].operands]
            i = using[0] if using else max(ready, key=lambda i: self.depth[nodes[i].result])
            ready.remove(i)
            self.compute(nodes[i])
            for j in waiting.get(nodes[i].result, ()):
                missing[j].discard(nodes[i].result)
                if not missing[j]:
                    insort(ready, j)

    def compute(self, n: _Node) -> None:
        name, swapped = (n.kernel.name, n.kernel.swapped) if n.kernel is not None else ("", "")
        first, *rest = n.operands
        if self.held is not first and rest == [self.held] and swapped:
            name, first, rest = swapped, self.held, [first]
        for v in n.operands:
            self.uses[v] -= 1
        self.keep(wanted=self.held in rest)
        if self.held is not first:
            self.program.emit("load", self.home[first])
            self.held = first
        if n.reduces:
            self.home[n.result] = self.outs[n.result] if n.result in self.outs else self.program.register(kernels().ROWS)
            self.program.emit(name, self.home[n.result], self.reductions)
            self.reductions += 1
            return
        if name:
            self.program.emit(name, *(self.home[v] for v in rest))
        if n.rounding is not None:
            self.program.emit(n.rounding)
        self.held = n.result

    def keep(self, wanted: bool = False) -> None:
        """Store the value of the accumulator, if it is needed again or `wanted`, and not stored."""
        v = self.held
        if v is None or v in self.home or not (wanted or self.uses[v] or v in self.outs):
            return
        self.home[v] = self.outs[v] if v in self.outs else self.program.register(self.kind(v))
        self.program.emit("store", self.home[v])

    def kind(self, v: Hashable) -> int:
        """The kind of register for a value of this phase: LOCAL if no later phase uses it."""
        kernel = kernels()
        if self.last[v] == self.level:
            return int(kernel.LOCAL)
        return int(kernel.ROWS if self.level % 2 else kernel.FULL)
