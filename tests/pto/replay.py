"""One run of a PTO program as a straight line for the judge of `pto_order_oracle`: loops unrolled, branches taken.

What scalars are is computed here, from the ops of the program; clocks, windows and types of accesses are the judge's own.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from tests.pto import order_oracle as oracle
from tests.pto.order_oracle import Barrier, Do, Judge, Place, Sync

SCALARS = {
    "addi": lambda a, b: a + b,
    "subi": lambda a, b: a - b,
    "muli": lambda a, b: a * b,
    "divsi": lambda a, b: abs(a) // b * (1 if a >= 0 else -1),
    "remsi": lambda a, b: abs(a) % b * (1 if a >= 0 else -1),
    "ceildivsi": lambda a, b: -(-a // b),
    "floordivsi": lambda a, b: a // b,
    "xori": lambda a, b: a ^ b,
}
COMPARED = {"slt": lambda a, b: a < b, "eq": lambda a, b: a == b, "sge": lambda a, b: a >= b}
KINDS = {"tile.load": "load", "tile.mov.m2l": "m2l", "tile.mov.m2r": "m2l", "tile.mov.a2v": "out"}
BARRIERS = {"ALL": "ALL", "TLOAD": "load", "TSTORE_VEC": "store", "TSTORE_ACC": "out", "TMOV_M2L": "m2l", "TMOV_A2V": "out"}
BARRIERS |= {"TMOV_M2R": "m2l", "TMATMUL": "mul", "TMATMUL_ACC": "mul"}
BYTES = {"f32": 4, "f16": 2}


class Replay:
    """A run with these scalar arguments. Tiles and events are names, unique for each time an op runs."""

    def __init__(self, program: Any, scalars: dict[str, int]) -> None:
        self.line: list[Any] = []
        self.ops: dict[str, Any] = {}  # which op a name is of
        self.now: dict[Any, Any] = {}
        self.homes: dict[str, Do] = {}
        self.rows: dict[str, int] = {}  # that are valid in a tile
        for p in program.main.params:
            self.now[p] = scalars.get(p.name, p.name)
        self.block(program.main)

    def value(self, x: Any) -> Any:
        """What an operand is: a number, memory, or a name."""
        if x in self.now:
            return self.now[x]
        return int.from_bytes(x.data, "little", signed=True)  # a literal

    def block(self, region: Any) -> list[Any]:
        for op in region.body:
            self.op(op)
        return [self.value(x) for x in region.results]

    def op(self, op: Any) -> None:
        short = op.defn.short
        if short == "constant":
            self.now[op.results[0]] = self.value(op.attr("value"))
        elif short in SCALARS:
            self.now[op.results[0]] = SCALARS[short](*map(self.value, op.operands))
        elif short == "cmpi":
            self.now[op.results[0]] = COMPARED[op.attr("predicate")](*map(self.value, op.operands))
        elif short == "sync":
            self.line.append(Sync([self.value(e) for e in op.operands]))
        elif short == "sync.op":
            self.line.append(Barrier(BARRIERS.get(op.attr("opcode"), "exp")))
        elif short == "tile.assign":
            address = self.value(op.operands[1])
            assert address % 32 == 0
            self.homes[self.value(op.operands[0])].address = Place(address // 32)
        elif short.startswith("tile."):
            self.tile_op(op, short)
        elif short == "scf.if":
            taken = op.regions[0 if self.value(op.operands[0]) else 1]
            self.give(op.results, self.block(taken))
        elif short == "scf.for":
            lower, upper, step, *values = map(self.value, op.operands)
            (body,) = op.regions
            for i in range(lower, upper, step):
                self.give(body.params, [i, *values])
                values = self.block(body)
            self.give(op.results, values)
        else:
            assert short == "scf.while", short
            before, body = op.regions
            values = list(map(self.value, op.operands))
            while True:
                self.give(before.params, values)
                holds, *given = self.block(before)
                if not holds:
                    break
                self.give(body.params, given)
                values = self.block(body)
            self.give(op.results, given)

    def give(self, homes: Any, values: list[Any]) -> None:
        self.now.update(zip(homes, values, strict=True))

    def tile_op(self, op: Any, short: str) -> None:
        groups = dict(zip([g.name for g in op.defn.groups], op.defn.split(op.attrs, op.operands), strict=True))
        name = f"x{len(self.line)}"
        self.ops[name] = op
        tiles = [x for x in op.operands if type(x.type).__name__ == "TileType"]
        kind = KINDS.get(short, "mul" if short.startswith("tile.matmul") else "exp")
        do = Do(kind, name, [self.value(t) for t in tiles], [self.value(e) for e in groups["wait"]])
        if short in ("tile.load", "tile.store"):
            memory = groups["source" if short == "tile.load" else "target"]
            row = self.value(groups["indices"][0])
            assert row % oracle.ROWS == 0
            do.memory, do.place = self.value(memory), Place(row // oracle.ROWS)
            do.writes = short == "tile.store"
            if do.writes:
                do.kind = "out" if tiles[0].type.loc == "Acc" else "store"
        do.rows = self.value(groups["valid"][0]) if groups["valid"] else min([self.rows[t] for t in do.uses], default=16)
        self.rows[name] = do.rows
        for v in op.results:
            self.now[v] = name
            if type(v.type).__name__ == "EventType":
                do.event = name
            else:
                do.space = v.type.loc or "Vec"
                do.size = 256 * BYTES[v.type.dtype.name]
        self.homes[name] = do
        self.line.append(do)


def faults(program: Any, ways: dict[str, tuple[int, ...]], returns: bool = False) -> set[tuple[str, int, int]]:
    """What is wrong with a program, over all ways of its scalar arguments: a code, the earlier op and the later one. `returns`:
    so is what is not complete at its end."""
    used = [p.name for p in program.main.params if p.name in ways]
    numbers = {op: k for k, op in enumerate(program.main.ops())}
    kinds = {"use": "MissingWait", "memory": "MemoryHazard", "over": "TileOverwritten", "left": "UnwaitedEvent"}
    found = set()
    for picks in product(*[ways[name] for name in used]):
        run = Replay(program, dict(zip(used, picks, strict=True)))
        judge = Judge(run.line, {})
        if returns:
            judge.returns()
        for kind, a, b in judge.faults:
            found.add((kinds[kind], numbers[run.ops[a]] if a else -1, numbers[run.ops[b]] if b else -1))
    missing = {(a, b) for kind, a, b in found if kind == "MissingWait"}
    return {(kind, a, b) for kind, a, b in found if kind != "MemoryHazard" or (a, b) not in missing}


def said(program: Any, found: Any, severity: str = "ERROR") -> set[tuple[str, int, int]]:
    """The errors that a check has found in a program, as `faults` says them; or its warnings about two ops."""
    numbers: dict[int, int] = {}
    for k, op in enumerate(program.main.ops()):
        numbers.setdefault(program.source.span(op.loc).start, k)

    def number(span: Any) -> int:
        return numbers[max(start for start in numbers if start <= span.start)]

    def first(d: Any) -> int:
        return -1 if d.code == "TileOverwritten" else number(d.labels[0].span)

    return {(d.code, first(d), number(d.span)) for d in found if d.severity.name == severity and d.labels}
