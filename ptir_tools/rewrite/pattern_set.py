"""Sets of patterns, indexed by root op and sorted by benefit. Specification: PTIR rewrite system, "PatternSet".

The candidate patterns of an op depend on its declaration, on the definitions of its operands and, where rules name numbers, on
the values of its constant operands. They are computed once per kind of op, so that few patterns are tried in vain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial

from ptir_tools.core.declare import OPS
from ptir_tools.core.dtypes import DType
from ptir_tools.core.ir import Literal, Op, OpDef, Operand, Value, exact
from ptir_tools.core.records import dataclass, field
from ptir_tools.rewrite.constants import element_of, is_number, literal_of, number
from ptir_tools.rewrite.fold import FOLD_DEPTH, foldable, may_compute
from ptir_tools.rewrite.patterns import Effect, Look, Pattern, is_constant, named, origin

_MANY = 4  # operands; of an op with more their definitions are not looked up
_NONE: frozenset[object] = frozenset()


@dataclass(slots=True)
class PatternSet:
    """A set of patterns that is being built."""

    store: list[Pattern] = field(default_factory=list)

    def add(self, *patterns: Pattern) -> PatternSet:
        """Add patterns; those of equal benefit are tried in this order. Raises TypeError for an object that is not a pattern,
        such as a class."""
        for p in patterns:
            if not isinstance(p, Pattern):
                raise TypeError(f"{p!r} is not a pattern")
        self.store.extend(patterns)
        return self

    def freeze(self) -> FrozenPatternSet:
        """The set indexed by root, each list sorted by benefit, highest first. Raises ValueError for a pattern whose root is no
        op, or that has none."""
        return FrozenPatternSet(self.store)


class Candidates:
    """The candidates for ops of one kind: `patterns`, highest benefit first, whether the declaration `folds`, whether the op may
    be on constants (`computes`). `allowed[e]` are the patterns that change floats no more than the effect `e`; `depth` is how far
    the deepest looks, folding included; 0: there is nothing."""

    __slots__ = ("allowed", "computes", "depth", "folds", "narrowed", "patterns", "positions")

    def __init__(self, patterns: Sequence[Pattern], folds: bool, computes: bool, positions: Sequence[int] = ()) -> None:
        self.patterns = tuple(patterns)
        self.folds = folds
        self.computes = computes
        self.allowed = [tuple(p for p in patterns if p.effect <= e) for e in Effect]
        self.depth = max((p.depth for p in patterns), default=0)
        if folds or computes:
            self.depth = max(self.depth, FOLD_DEPTH)
        self.positions = tuple(sorted({i for p in patterns for i, _ in p.numbers}.intersection(positions)))
        self.narrowed: dict[tuple[frozenset[object], ...], Candidates] = {}


class Watchers(dict[OpDef, dict[OpDef, int]]):
    """Per op, the users from which a pattern looks down to it, computed on demand; bit k: the user is k levels below the root.
    Folding looks, too."""

    def __init__(self, looks: Callable[[], Iterable[Look]]) -> None:
        super().__init__()
        self.looks = looks
        self.levels: defaultdict[OpDef | None, defaultdict[OpDef | None, int]] = defaultdict(lambda: defaultdict(int))

    def __missing__(self, d: OpDef) -> dict[OpDef, int]:
        if not self:
            for op, user, level in self.looks():
                self.levels[op][user] |= 1 << level
        any_op, own = self.levels[None], self.levels[d]
        folds = {u for u in OPS.values() if u.fold is not None or (d.is_constant and foldable(u))}
        by_user = {u: any_op[None] | own[None] | any_op[u] | own[u] | (u in folds) for u in OPS.values()}
        results = self[d] = {u: levels for u, levels in by_user.items() if levels}
        return results


def _roots(p: Pattern) -> list[OpDef]:
    if not p.roots:
        raise ValueError(f"pattern `{p.name}` names no roots")
    try:
        return [d for root in p.roots for d in named(root)]
    except KeyError as unknown:
        raise ValueError(f"pattern `{p.name}`: no op or family `{unknown.args[0]}`") from None


class FrozenPatternSet:
    """Patterns by root op, those of one root by benefit. `depth` is the deepest pattern's."""

    __slots__ = ("_matched", "_memo", "_numbers", "_values", "_watchers", "by_root", "depth", "patterns")

    def __init__(self, patterns: Iterable[Pattern]) -> None:
        self.patterns = sorted(patterns, key=lambda p: -p.benefit)
        self.by_root: dict[OpDef, list[Pattern]] = {}
        for p in self.patterns:
            for d in _roots(p):
                self.by_root.setdefault(d, []).append(p)
        self.depth = max((p.depth for p in self.patterns), default=1)
        self._numbers = list({exact(n): n for p in self.patterns for _, n in p.numbers}.values())
        self._values = frozenset(self._numbers)
        self._matched = lru_cache(1 << 16)(self._matched_by)
        self._memo: dict[object, Candidates] = {}
        self._watchers: dict[tuple[bool, Effect], Watchers] = {}

    def watchers(self, uses: bool, floats: Effect) -> Watchers:
        """The watchers: `uses`: of lost uses; `floats`: only patterns of at most that effect."""
        if (result := self._watchers.get((uses, floats))) is None:
            result = self._watchers[uses, floats] = Watchers(partial(self._looks, uses, floats))
        return result

    def _looks(self, uses: bool, floats: Effect) -> Iterator[Look]:
        for p in self.patterns:
            for look in p.looks_for_uses() if uses else p.looks_through():
                if look[2] or p.effect <= floats:
                    yield look

    def candidates(self, op: Op) -> Candidates:
        """The candidates for an op of this kind; see `narrow` for one with `positions`."""
        d, operands = op.defn, op.operands
        if len(operands) == 2:  # the usual case, without a list
            x, y = operands
            key: tuple[OpDef | type[Literal] | None, ...] = (
                d,
                v.defn if x.__class__ is Value and (v := x.op) is not None else origin(x),
                v.defn if y.__class__ is Value and (v := y.op) is not None else origin(y),
            )
        elif len(operands) > _MANY:
            cached = self._memo.get(d)
            if cached is None:
                cached = self._memo[d] = Candidates(self.by_root.get(d, ()), d.fold is not None, foldable(d))
            return cached
        else:
            key = (d, *map(origin, operands))
        cached = self._memo.get(key)
        if cached is None:
            origins = key[1:]
            patterns = [p for p in self.by_root.get(d, ()) if p.admits(origins)]
            constants = [i for i, o in enumerate(origins) if is_constant(o)]
            cached = self._memo[key] = Candidates(patterns, d.fold is not None, may_compute(d, origins), constants)
        return cached

    def narrow(self, result: Candidates, operands: Sequence[Operand]) -> Candidates:
        """The candidates of `result` whose numbers equal the constant operands."""
        key = tuple([self._numbers_of(operands[i]) for i in result.positions])
        narrowed = result.narrowed.get(key)
        if narrowed is None:
            matched = dict(zip(result.positions, key, strict=True))
            fit = [p for p in result.patterns if all(i not in matched or exact(n) in matched[i] for i, n in p.numbers)]
            narrowed = result.narrowed[key] = Candidates(fit, result.folds, result.computes)
        return narrowed

    def _numbers_of(self, x: Operand) -> frozenset[object]:
        """Which numbers of rules, as `exact` keys, the constant `x` is."""
        literal = literal_of(x)
        data = element_of(literal)
        return _NONE if literal is None or data is None else self._matched(literal.type.dtype, data)

    def _matched_by(self, dtype: DType, data: bytes) -> frozenset[object]:
        result = number(dtype, data)
        if result not in self._values:  # the usual case; an equal number may be of another kind
            return _NONE
        return frozenset(exact(n) for n in self._numbers if is_number(result, n))
