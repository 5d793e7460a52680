"""The defining ops of symbols. The op that defines a symbol stays as long as the symbol is mentioned.

Extents are only in types. If no parameter has a symbol, its value comes from an op: a `concat` declared `?T` computes it, an
`iota` of `?T` only mentions it. That op may have no uses. So the rewriter checks here before it erases an op, and the verifier
of passes checks whether a symbol has lost its last definer.

If extents are expressions, the dialect declares which ops have an equation that may determine symbols. Equations are solved in
program order, and the solution may depend on the numbers. So only an equal op can replace such an op.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator
from functools import cache

from ptir_tools.core.dialect import Dialect, Extents, Program
from ptir_tools.core.ir import Function, Op, Region, operand_type
from ptir_tools.core.symbols import mentioned, substitute
from ptir_tools.core.types import UNKNOWN, Sym, TensorType, TupleType, Type
from ptir_tools.core.violations import Violation

_GIVEN = 0  # the rank of a symbol that a parameter or the caller determines


@cache
def _symbols(t: object, extents: Extents | None = None) -> frozenset[Sym]:
    """The symbols of a type or of attributes."""
    result = mentioned(t)
    return frozenset(result if extents is None else (n for s in result for n in extents.names(s)))


def symbols_of(*blocks: Region, extents: Extents | None = None) -> set[Sym]:
    """The symbols in the types of `blocks`: of parameters, op results and block results."""
    types = {v.type for b in blocks for op in b.body for v in op.results}
    for b in blocks:
        types.update([p.type for p in b.params], b.result_types)
    return set().union(*(_symbols(t, extents) for t in types))


def reached(blocks: Iterable[Region]) -> list[Region]:
    """`blocks` and the regions that their ops run, directly or not, each once."""
    known = dict.fromkeys(blocks)
    todo = list(known)
    while todo:
        new = [r for op in todo.pop().body for r in op.regions if r not in known]
        known.update(dict.fromkeys(new))
        todo += new
    return list(known)


def _given(block: Region, extents: Extents | None = None) -> set[Sym]:
    """The symbols that the arguments of a function determine. Symbols of a region are determined outside of it."""
    if not isinstance(block, Function):
        return set()
    types = [p.type for p in block.params]
    return set().union(*map(_symbols, types)) if extents is None else extents.given(types)


def _own(op: Op, extents: Extents | None = None) -> set[Sym]:
    """The symbols in the attributes and result types of `op`."""
    named = _symbols(op.attrs, extents) if extents is not None else mentioned(op.attrs)
    return set(named).union(*(_symbols(v.type, extents) for v in op.results))


def _needs(op: Op, extents: Extents | None = None) -> set[Sym]:
    """The symbols in the operand types of `op`."""
    return set().union(*(_symbols(operand_type(x), extents) for x in op.operands))


def determined(op: Op, known: Iterable[Sym] | None = None, extents: Extents | None = None) -> set[Sym]:
    """The symbols that `op` determines from those of its operand types and those `known`. If `known` is None: all that it could
    determine if its operands have suitable types, as with extents that are expressions."""
    if not (fresh := _own(op, extents) - _needs(op, extents)):
        return fresh
    if extents is not None:
        return extents.determined(op) & fresh
    types = tuple(map(operand_type, op.operands))
    symbols: set[Sym] = set()
    open_ = fresh.intersection(mentioned(op.attrs)).difference(known or ())
    if op.defn.solve is not None and known is None:
        symbols.update(open_)
    elif op.defn.solve is not None and len(open_) == 1:
        ones = {s.name: 1 for s in (*_needs(op), *fresh) if s not in open_}
        static, attrs = substitute((types, op.attrs), lambda s: ones.get(s.name, s))
        try:
            solved = op.defn.solve(static, op.defn.named(attrs))
        except Violation:  # other numbers could fit, too
            solved = {s.name: 1 for s in open_}
        symbols.update(s for s in open_ if s.name in solved)
    try:
        inferred = op.defn.result_types(types, op.attrs, op.regions)
    except Violation:
        return symbols
    for v, t in zip(op.results, inferred, strict=False):
        symbols.update(_measured(v.type, t))
    return symbols & fresh


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
    return [op, *(inner for r in reached(op.regions) for inner in r.body)] if op.regions else [op]


def defines(op: Op) -> bool:
    """Whether `op`, or an op of a region that it runs, can determine a symbol."""
    return any(determined(o) for o in _inside(op))


def _ranks(block: Region, every: set[Sym], extents: Extents | None = None) -> dict[Sym, int]:
    """The order in which symbols are determined: 0 for symbols that are given or that no op determines, then 1, 2, …."""
    rank = dict.fromkeys(_given(block, extents), _GIVEN)
    ops = [(op, needs) for b in reached([block]) for op in b.body if not _own(op, extents) <= (needs := _needs(op, extents))]
    while True:
        grown = True
        while grown:
            grown = False
            for op, needs in ops:
                if needs <= rank.keys() and (new := determined(op, rank, extents) - rank.keys()):
                    rank.update({s: len(rank) + k for k, s in enumerate(new, 1)})
                    grown = True
        if not (left := every - rank.keys()):
            return rank
        made = {s for op, _ in ops for s in determined(op, extents=extents)}
        rank.update(dict.fromkeys((left - made) or left, _GIVEN))  # these symbols get numbers from --bind


class Definers:
    """The definers of a block's symbols that only ops define. Mentions and definitions in a region belong to its op. An op is a
    definer of a symbol when it can determine it from earlier symbols. So definitions stay acyclic after an erasure.
    """

    @staticmethod
    def of(block: Region, dialect: Dialect, program: Program | None = None) -> Definers | None:
        """The table of `block` in `program`; None if its parameters determine all symbols."""
        extents = dialect.extents
        every = symbols_of(*reached([block]), extents=extents)
        if every <= _given(block, extents):
            return None
        rank = _ranks(block, every, extents)
        return Definers(block, rank, extents, program) if any(rank.values()) else None

    def __init__(self, block: Region, rank: dict[Sym, int], extents: Extents | None, program: Program | None) -> None:
        self.block, self.extents, self.program = block, extents, program
        self.rank = rank
        self.inner = not isinstance(block, Function)  # enclosing blocks may mention any symbol
        self.mentions: Counter[Sym] = Counter()
        self.ops: defaultdict[Sym, defaultdict[Hashable, dict[Op, None]]]  # the definers, by the key of interchangeable ones
        self.ops = defaultdict(lambda: defaultdict(dict))
        self.parts: dict[Op, tuple[set[Sym], set[Sym], Hashable]] = {}  # by op: mentioned symbols, defined symbols, the key
        self.mentions.update(s for t in {*block.result_types} for s in _symbols(t, extents) if rank.get(s))
        for op in block.body:
            self.add(op)

    def add(self, op: Op) -> None:
        """Add `op`, which is new in the block."""
        ops, rank, extents = _inside(op), self.rank, self.extents
        mentions = symbols_of(*reached(op.regions), extents=extents).union(*(_own(o, extents) for o in ops))
        if mentions := {s for s in mentions if rank.get(s)}:
            fresh = [(o, s) for o in ops for s in _own(o, extents) - _needs(o, extents) if rank.get(s)]
            defines = {s for o, s in fresh if self._defines(o, s)}
            how = None if extents is None else (op.defn, *map(operand_type, op.operands), op.attrs)
            self.parts[op] = mentions, defines, how
            self.mentions.update(mentions)
            for s in defines:
                self.ops[s][how][op] = None

    def _defines(self, op: Op, s: Sym) -> bool:
        """Whether `op` determines `s` from symbols of lower rank."""
        if self.extents is not None:
            return s in determined(op, extents=self.extents)
        before = {n for n, rank in self.rank.items() if rank < self.rank[s]}
        return self.rank.keys() & _needs(op) <= before and s in determined(op, before)

    def remove(self, op: Op) -> list[Op]:
        """Remove the erased `op` from the table. Returns the definers that are now the last mention of their symbol."""
        if (part := self.parts.pop(op, None)) is None:
            return []
        mentions, defines, how = part
        self.mentions.subtract(mentions)
        for s in defines:
            del self.ops[s][how][op]
        return [d for s in mentions if self.mentions[s] == 1 for entry in self.ops[s].values() for d in entry]

    def changed(self, op: Op) -> None:
        """Update `op` after a change of its operands, attributes, regions or types."""
        self.remove(op)
        self.add(op)

    def needed(self, op: Op) -> bool:
        """Whether `op` is the only definer of a symbol that others mention, in this block or in enclosing ones."""
        if (part := self.parts.get(op)) is None:
            return False
        last = [s for s in part[1] if len(self.ops[s][part[2]]) == 1]
        if any(self.mentions[s] > 1 for s in last):
            return True
        return bool(last) and self.inner and not self._outside().isdisjoint(last)

    def _outside(self) -> set[Sym]:
        """The symbols that enclosing blocks mention; all, if these are unknown."""
        if self.program is None:
            return {*self.rank}
        return symbols_of(*(b for b in self.program.blocks() if b is not self.block), extents=self.extents)


def undefined(program: Program) -> set[tuple[str, str]]:
    """The undefined symbols, each with the function that needs it. The caller of a run must give them."""
    pairs: set[tuple[str, str]] = set()
    extents = program.dialect.extents
    for f in program.functions:
        every, given = symbols_of(*reached([f]), extents=extents), _given(f, extents)
        if not every <= given:
            pairs.update((f.name, s.name) for s, n in _ranks(f, every, extents).items() if n == _GIVEN and s not in given)
    return pairs
