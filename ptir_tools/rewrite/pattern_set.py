"""Sets of patterns, indexed by root op and sorted by benefit. Specification: PTIR rewrite system, "PatternSet".

The candidate patterns of an op depend on its declaration, on the definitions of its operands and, where rules name numbers, on
the values of its constant operands. They are computed once per kind of op, so that few patterns are tried in vain.
"""

from __future__ import annotations

from _thread import RLock
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import import_module

from ptir_tools.core.declare import OPS
from ptir_tools.core.dtypes import DType
from ptir_tools.core.ir import Literal, Op, OpDef, Operand, Value, exact
from ptir_tools.core.records import NamedTuple, dataclass, field
from ptir_tools.rewrite.constants import element_of, is_number, literal_of, number
from ptir_tools.rewrite.fold import FOLD_DEPTH, foldable, may_compute
from ptir_tools.rewrite.patterns import Effect, Look, Pattern, family, is_constant, origin

_MANY = 4  # operands; of an op with more their definitions are not looked up
_NONE: frozenset[object] = frozenset()


class Later(NamedTuple):
    """The patterns that a module has under a name. It is imported when an op is met that is one of `roots`, ops and families."""

    module: str
    name: str
    roots: frozenset[str]

    def patterns(self) -> Sequence[Pattern]:
        """Import them."""
        found: Sequence[Pattern] = getattr(import_module(self.module), self.name)
        return found


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
    Folding looks, too. Only patterns that were `met` count; when there are more, this is cleared."""

    def __init__(self, met: Sequence[Pattern], looks: Callable[[Pattern], Iterable[Look]], lock: RLock) -> None:
        super().__init__()
        self.met, self.looks, self.lock = met, looks, lock
        self.known = 0  # how many of them are in `levels`
        self.levels: defaultdict[OpDef | None, defaultdict[OpDef | None, int]] = defaultdict(lambda: defaultdict(int))

    def __missing__(self, d: OpDef) -> dict[OpDef, int]:
        with self.lock:
            return self.computed(d)

    def computed(self, d: OpDef) -> dict[OpDef, int]:
        """Compute those of `d`."""
        for p in self.met[self.known :]:
            for op, user, level in self.looks(p):
                self.levels[op][user] |= 1 << level
        self.known = len(self.met)
        any_op, own = self.levels[None], self.levels[d]
        folds = {u for u in OPS.values() if u.fold is not None or (d.is_constant and foldable(u))}
        by_user = {u: any_op[None] | own[None] | any_op[u] | own[u] | (u in folds) for u in OPS.values()}
        results = self[d] = {u: levels for u, levels in by_user.items() if levels}
        return results


def _require_roots(patterns: Iterable[Pattern]) -> None:
    known = {name for d in OPS.values() for name in (d.name, family(d))}
    for p in patterns:
        if not p.roots:
            raise ValueError(f"pattern `{p.name}` names no roots")
        if unknown := [root for root in p.roots if root not in known]:
            raise ValueError(f"pattern `{p.name}`: no op or family `{unknown[0]}`")


class FrozenPatternSet:
    """Patterns by root op, those of one root by benefit. Those of a `Later` are there when an op that they are for was met."""

    __slots__ = (
        "_by_name",
        "_lock",
        "_matched",
        "_memo",
        "_met",
        "_numbers",
        "_rooted",
        "_there",
        "_values",
        "_waiting",
        "_watchers",
    )

    def __init__(self, patterns: Iterable[Pattern | Later]) -> None:
        self._there: dict[int, Sequence[Pattern]] = {}  # by place in the list
        self._by_name: dict[str, list[tuple[int, int, Pattern]]] = {}  # by op or family, with the place
        self._rooted: dict[OpDef, list[Pattern]] = {}
        self._met: list[Pattern] = []  # those for an op that was met; no other has failed anywhere
        self._lock = RLock()  # a set is shared by threads
        self._numbers: list[complex] = []
        self._values: frozenset[complex] = frozenset()
        self._matched = lru_cache(1 << 16)(self._matched_by)
        self._memo: dict[object, Candidates] = {}
        self._watchers: dict[tuple[bool, Effect], Watchers] = {}
        listed = dict(enumerate(patterns))
        self._waiting = {i: p for i, p in listed.items() if isinstance(p, Later)}
        self._add({i: [p] for i, p in listed.items() if isinstance(p, Pattern)})

    def _add(self, found: Mapping[int, Sequence[Pattern]]) -> None:
        """Let patterns take part, given by their place in the list."""
        _require_roots(p for part in found.values() for p in part)
        self._there |= found
        for place, part in found.items():
            for i, p in enumerate(part):
                for root in dict.fromkeys(p.roots):
                    self._by_name.setdefault(root, []).append((place, i, p))
        self._numbers = list({exact(n): n for p in self._patterns() for _, n in p.numbers}.values())
        self._values = frozenset(self._numbers)
        self._matched.cache_clear()

    def _patterns(self) -> Iterator[Pattern]:
        """Those that are there, in the order of the list."""
        return (p for place in sorted(self._there) for p in self._there[place])

    def _import(self, due: Mapping[int, Later]) -> None:
        """Let patterns that wait take part."""
        if due:
            self._waiting = {i: later for i, later in self._waiting.items() if i not in due}
            self._add({i: later.patterns() for i, later in due.items()})

    def rooted(self, d: OpDef) -> list[Pattern]:
        """Those for ops like this one, highest benefit first."""
        found = self._rooted.get(d)
        if found is None:
            with self._lock:
                found = self._rooted.get(d) or self._meet(d)
        return found

    def _meet(self, d: OpDef) -> list[Pattern]:
        names = [d.name, group] if (group := family(d)) not in OPS else [d.name]
        self._import({i: later for i, later in self._waiting.items() if not later.roots.isdisjoint(names)})
        listed = sorted((x for name in names for x in self._by_name.get(name, ())), key=lambda x: x[:2])
        found = sorted(dict.fromkeys(p for _, _, p in listed), key=lambda p: -p.benefit)
        self._met += set(found).difference(self._met)
        for watchers in list(self._watchers.values()):
            watchers.clear()
        self._rooted[d] = found
        return found

    @property
    def patterns(self) -> list[Pattern]:
        """All of them, highest benefit first."""
        with self._lock:
            self._import(self._waiting)
        return sorted(self._patterns(), key=lambda p: -p.benefit)

    @property
    def by_root(self) -> dict[OpDef, list[Pattern]]:
        """All of them, by the ops that they are for."""
        return {d: found for d in OPS.values() if (found := self.rooted(d))}

    def watchers(self, uses: bool, floats: Effect) -> Watchers:
        """The watchers: `uses`: of lost uses; `floats`: only patterns of at most that effect."""
        if (result := self._watchers.get((uses, floats))) is None:

            def looks(p: Pattern) -> Iterator[Look]:
                return (x for x in (p.looks_for_uses() if uses else p.looks_through()) if x[2] or p.effect <= floats)

            result = self._watchers[uses, floats] = Watchers(self._met, looks, self._lock)
        return result

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
                cached = self._memo[d] = Candidates(self.rooted(d), d.fold is not None, foldable(d))
            return cached
        else:
            key = (d, *map(origin, operands))
        cached = self._memo.get(key)
        if cached is None:
            origins = key[1:]
            patterns = [p for p in self.rooted(d) if p.admits(origins)]
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
