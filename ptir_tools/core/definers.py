"""Which ops define the symbols of a block. A symbol keeps its definer for as long as anything mentions it.

A program carries its extents in types alone. A symbol of no parameter has its number from an op: a `concat` declared `?T`
computes it, an `iota` of `?T` only mentions it. The number comes from an op that nothing else may need. So the rewriter asks here
before it takes an op out. The verifier of passes asks whether a symbol has lost its last definer.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cache

from ptir_tools.core.diagnostics import Violation
from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Function, Op, Region, operand_type
from ptir_tools.core.symbols import mentioned, substitute
from ptir_tools.core.types import UNKNOWN, Sym, TensorType, TupleType, Type

_GIVEN = 0  # the rank of a symbol that a parameter, or the caller, gives


@cache
def _symbols(t: Type) -> frozenset[Sym]:
    """The symbols of a type."""
    return frozenset(mentioned(t))


def symbols_of(*blocks: Region) -> set[Sym]:
    """The symbols in the types of `blocks`: of parameters, of what ops make, of results."""
    types = {v.type for b in blocks for op in b.body for v in op.results}
    for b in blocks:
        types.update([p.type for p in b.params], b.result_types)
    return set().union(*map(_symbols, types))


def _reached(blocks: Iterable[Region]) -> list[Region]:
    """`blocks` and the regions that their ops run, directly or not, each once."""
    found = dict.fromkeys(blocks)
    todo = list(found)
    while todo:
        new = [r for op in todo.pop().body for r in op.regions if r not in found]
        found.update(dict.fromkeys(new))
        todo += new
    return list(found)


def _given(block: Region) -> set[Sym]:
    """The symbols that the arguments of a function tell; a region's are known, or not, around it."""
    return set().union(*(_symbols(p.type) for p in block.params)) if isinstance(block, Function) else set()


def _own(op: Op) -> set[Sym]:
    """The symbols in the attributes and result types of `op`."""
    return {*mentioned(op.attrs)}.union(*(_symbols(v.type) for v in op.results))


def _needs(op: Op) -> set[Sym]:
    """The symbols in the operand types of `op`."""
    return set().union(*(_symbols(operand_type(x)) for x in op.operands))


def determined(op: Op, known: Iterable[Sym] | None = None) -> set[Sym]:
    """The symbols that `op` gives numbers to once those of its operand types, and those `known`, have numbers.

    `known` None: those that it could, if the right ones were known.
    """
    if not (fresh := _own(op) - _needs(op)):
        return fresh
    types = tuple(map(operand_type, op.operands))
    found: set[Sym] = set()
    open_ = fresh.intersection(mentioned(op.attrs)).difference(known or ())
    if op.defn.solve is not None and known is None:
        found.update(open_)
    elif op.defn.solve is not None and len(open_) == 1:
        ones = {s.name: 1 for s in (*_needs(op), *fresh) if s not in open_}
        static, attrs = substitute((types, op.attrs), lambda s: ones.get(s.name, s))
        try:
            solved = op.defn.solve(static, op.defn.named(attrs))
        except Violation:  # other numbers would do
            solved = {s.name: 1 for s in open_}
        found.update(s for s in open_ if s.name in solved)
    try:
        inferred = op.defn.result_types(types, op.attrs, op.regions)
    except Violation:
        return found
    for v, t in zip(op.results, inferred, strict=False):
        found.update(_measured(v.type, t))
    return found & fresh


def _measured(declared: Type, inferred: Type) -> Iterator[Sym]:
    """The symbols of `declared` for which the rule computes a number."""
    if isinstance(declared, TupleType) and isinstance(inferred, TupleType):
        for a, b in zip(declared.elements, inferred.elements, strict=False):
            yield from _measured(a, b)
    elif isinstance(declared, TensorType) and isinstance(inferred, TensorType):
        for d, n in zip(declared.shape, inferred.shape, strict=False):
            if isinstance(d, Sym) and d is not UNKNOWN and (n is UNKNOWN or isinstance(n, int)):
                yield d


def _inside(op: Op) -> list[Op]:
    """`op` and the ops of the regions that it runs, each once."""
    return [op, *(inner for r in _reached(op.regions) for inner in r.body)] if op.regions else [op]


def defines(op: Op) -> bool:
    """Whether `op`, or an op of a region that it runs, can determine a symbol."""
    return any(determined(o) for o in _inside(op))


def _ranks(block: Region, every: set[Sym]) -> dict[Sym, int]:
    """For each symbol when it gets its number: 0 for what is given or what no op determines, then one after the other."""
    rank = dict.fromkeys(_given(block), _GIVEN)
    ops = [(op, needs) for b in _reached([block]) for op in b.body if not _own(op) <= (needs := _needs(op))]
    while True:
        grown = True
        while grown:
            grown = False
            for op, needs in ops:
                if needs <= rank.keys() and (new := determined(op, rank) - rank.keys()):
                    rank.update({s: len(rank) + k for k, s in enumerate(new, 1)})
                    grown = True
        if not (left := every - rank.keys()):
            return rank
        made = {s for op, _ in ops for s in determined(op)}
        rank.update(dict.fromkeys((left - made) or left, _GIVEN))  # numbers that --bind gives


class Definers:
    """The definers of the symbols of one block that only ops define. What the region of an op mentions and defines is the op's.

    An op counts as a definer of a symbol when it can determine it from symbols that are known earlier. So what is left after an
    erasure never depends on itself.
    """

    @staticmethod
    def of(block: Region, program: Program | None = None) -> Definers | None:
        """The table of `block` in `program`; None when its parameters give all symbols that there are."""
        every = symbols_of(*_reached([block]))
        if every <= _given(block):
            return None
        rank = _ranks(block, every)
        return Definers(block, rank, program) if any(rank.values()) else None

    def __init__(self, block: Region, rank: dict[Sym, int], program: Program | None) -> None:
        self.block, self.program = block, program
        self.rank = rank
        self.inner = not isinstance(block, Function)  # what is around it may mention any symbol
        self.mentions: Counter[Sym] = Counter()
        self.ops: defaultdict[Sym, dict[Op, None]] = defaultdict(dict)  # the definers
        self.parts: dict[Op, tuple[set[Sym], set[Sym]]] = {}  # of each op, what it mentions and what it defines
        self.mentions.update(s for t in {*block.result_types} for s in _symbols(t) if rank.get(s))
        for op in block.body:
            self.add(op)

    def add(self, op: Op) -> None:
        """Count `op`, which is new in the block."""
        ops, rank = _inside(op), self.rank
        mentions = set().union(*map(_own, ops), symbols_of(*_reached(op.regions)))
        if mentions := {s for s in mentions if rank.get(s)}:
            defines = {s for o in ops for s in _own(o) - _needs(o) if rank.get(s) and self._defines(o, s)}
            self.parts[op] = mentions, defines
            self.mentions.update(mentions)
            for s in defines:
                self.ops[s][op] = None

    def _defines(self, op: Op, s: Sym) -> bool:
        """Whether `op` determines `s` from what is known before `s`."""
        before = {n for n, rank in self.rank.items() if rank < self.rank[s]}
        return self.rank.keys() & _needs(op) <= before and s in determined(op, before)

    def remove(self, op: Op) -> list[Op]:
        """Count `op` no more, which leaves the block; the definers that are the last mention of their symbol now."""
        if (part := self.parts.pop(op, None)) is None:
            return []
        mentions, defines = part
        self.mentions.subtract(mentions)
        for s in defines:
            del self.ops[s][op]
        return [d for s in mentions if self.mentions[s] == 1 for d in self.ops[s]]

    def changed(self, op: Op) -> None:
        """Count `op` anew: its operands, attributes, regions or types are others."""
        self.remove(op)
        self.add(op)

    def needed(self, op: Op) -> bool:
        """Whether `op` alone defines a symbol that something else mentions, here or, of a region, around it."""
        if (part := self.parts.get(op)) is None:
            return False
        last = [s for s in part[1] if len(self.ops[s]) == 1]
        if any(self.mentions[s] > 1 for s in last):
            return True
        return bool(last) and self.inner and not self._outside().isdisjoint(last)

    def _outside(self) -> set[Sym]:
        """The symbols that blocks around this region mention; all, where they are not known."""
        if self.program is None:
            return {*self.rank}
        return symbols_of(*(b for b in self.program.blocks() if b is not self.block))


def undefined(program: Program) -> set[tuple[str, str]]:
    """The symbols that nothing defines, each with the function that needs it: a run must be given them."""
    if program.dialect.extents is not None:
        return set()
    found: set[tuple[str, str]] = set()
    for f in program.functions:
        every, given = symbols_of(*_reached([f])), _given(f)
        if not every <= given:
            found.update((f.name, s.name) for s, n in _ranks(f, every).items() if n == _GIVEN and s not in given)
    return found
