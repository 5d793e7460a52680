"""Who uses which value: a table built in one sweep and kept by edits that cost what they touch.

A value used a few times has its entries removed at once. Of one used often, a removal is only counted, and the entries that
are gone are dropped together when its users are next asked for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ptir_tools.core.ir import Element, Op, Operand, Region, Value
from ptir_tools.core.order import Order

User = Op | Region  # a region uses what it returns
_WIDE = 16  # what has more operands is indexed, so that replacing them one by one is linear
_OFTEN = 16  # a value with more uses than this


class Uses:
    """The uses of the ops and blocks in `order`."""

    __slots__ = ("_entries", "_order", "_stale", "_wide")

    def __init__(self, order: Order) -> None:
        self._order = order
        self._entries: defaultdict[Value, list[User]] = defaultdict(list)  # one per use
        self._stale: dict[Value, int] = {}  # how many entries of a value used often are gone
        self._wide: dict[User, defaultdict[Value, list[int]]] = {}

    def add_ops(self, ops: Iterable[Op]) -> None:
        """Enter the uses of the operands of `ops`."""
        entries = self._entries
        for op in ops:
            for x in op.operands:
                if isinstance(x, Value):
                    entries[x].append(op)
                elif isinstance(x, Element):
                    entries[x.value].append(op)

    def add(self, user: User, operands: Iterable[Operand]) -> None:
        """Enter the uses of `operands` by `user`."""
        entries = self._entries
        for x in operands:
            if isinstance(x, Value):
                entries[x].append(user)
            elif isinstance(x, Element):
                entries[x.value].append(user)

    def remove(self, user: User, operands: Iterable[Operand]) -> list[Value]:
        """Take out one use by `user` of each of `operands`; the values that they name."""
        values = [v for x in operands if (v := value_named(x)) is not None]
        for v in values:
            entries = self._entries[v]
            if len(entries) <= _OFTEN:
                entries.remove(user)
            else:
                self._stale[v] = self._stale.get(v, 0) + 1
        return values

    def forget(self, user: User) -> None:
        """The operands of `user` were exchanged as a whole."""
        self._wide.pop(user, None)

    def count(self, v: Value) -> int:
        """How many uses `v` has."""
        n = len(self._entries.get(v, ()))
        return n if n <= _OFTEN else n - self._stale.get(v, 0)

    def ops(self, v: Value) -> list[Op]:
        """The ops that use `v`, each once."""
        users = self._entries.get(v, ())
        return [u for u in (users if len(users) < 2 else self.of(v)) if isinstance(u, Op)]

    def values(self) -> Iterable[Value]:
        """The values that are or were used."""
        return self._entries

    def of(self, v: Value) -> dict[User, None]:
        """The users of `v`, each once; entries that are gone are dropped on the way."""
        users = dict.fromkeys(self._entries.get(v, ()))
        if not self._stale or not self._stale.pop(v, 0):
            return users
        live = {u: n for u in users if (n := self._uses_by(u, v))}
        self._entries[v] = [u for u, n in live.items() for _ in range(n)]
        return dict.fromkeys(live)

    def _uses_by(self, user: User, v: Value) -> int:
        alive = user in self._order.slots if isinstance(user, Op) else user in self._order.heads
        return len(self.places(user, v)) if alive else 0

    def places(self, user: User, v: Value) -> list[int]:
        """Which operands of `user` name `v`."""
        operands = operands_of(user)
        if len(operands) <= _WIDE:
            return [i for i, x in enumerate(operands) if x is v or (isinstance(x, Element) and x.value is v)]
        if (index := self._wide.get(user)) is None:
            index = self._wide[user] = defaultdict(list)
            for i, x in enumerate(operands):
                if (value := value_named(x)) is not None:
                    index[value].append(i)
        return index.get(v, [])

    def replace(self, v: Value, new: Callable[[Any], Operand], keep: Op | None) -> list[User]:
        """Put `new(operand)` in the place of every operand that names `v`, but for those of `keep`; who was changed."""
        users = [u for u in self.of(v) if u is not keep]
        for user in users:
            places = self.places(user, v)
            operands = list(user.operands) if isinstance(user, Op) else user.results
            for i in places:
                operands[i] = new(operands[i])
            self._moved(user, v, places, [operands[i] for i in places])
            if isinstance(user, Op):
                user.operands = tuple(operands)
        self._entries[v] = [keep] * self._uses_by(keep, v) if keep is not None else []
        return users

    def _moved(self, user: User, v: Value, places: Sequence[int], changed: Sequence[Operand]) -> None:
        self.add(user, changed)
        if (index := self._wide.get(user)) is not None:
            index.pop(v, None)
            for i, x in zip(places, changed, strict=True):
                if (value := value_named(x)) is not None:
                    index[value].append(i)


def operands_of(user: User) -> Sequence[Operand]:
    """The operands of an op, the results of a region."""
    return user.operands if isinstance(user, Op) else user.results


def value_named(x: Operand) -> Value | None:
    """The value that an operand names."""
    if isinstance(x, Value):
        return x
    return x.value if isinstance(x, Element) else None
