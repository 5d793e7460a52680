"""Use lists: tables built in one sweep, and updated by edits.

They are at the values (`Value.users`), once per use. A value used a few times has its entries removed at once. Of one used
often, a removal is only counted, and the entries that are gone are dropped together when its users are next asked for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from ptir_tools.core.ir import Element, Op, Operand, Region, Value
from ptir_tools.core.types import TupleType
from ptir_tools.rewrite.order import Order

User = Op | Region  # a region uses what it returns
_WIDE = 16  # a user with more operands is indexed, so that a value is quickly found among them
_OFTEN = 16  # a value with more uses than this
_FEW = 2  # uses, perhaps of one user or of two equal ones: `has_one_use` is checked again at this count


class Uses:
    """The uses of the ops and blocks in `order`."""

    __slots__ = ("_order", "_stale", "_wide")

    def __init__(self, order: Order) -> None:
        self._order = order
        self._stale: dict[Value, int] = {}  # the number of removed entries of a value with many uses
        self._wide: dict[User, defaultdict[Value, list[int]]] = {}

    def enter(self, block: Region, live: bool) -> set[Op]:
        """Enter the uses of the results of `block`, of its ops, last to first, and of nested blocks that capture values.

        `live`: not those of ops without effects that nothing uses; these ops, which are left out.
        """
        dead: set[Op] = set()
        self.add(block, block.results)
        for op in reversed(block.body):
            if live and op.defn.is_pure:
                for v in op.results:
                    if v.users:
                        break
                else:
                    dead.add(op)
                    continue
            for x in op.operands:
                if x.__class__ is not Value:
                    self.add(op, (x,))
                elif x.users:
                    x.users.append(op)
                else:
                    x.users = [op]
            for r in op.regions:
                if not r.isolated:
                    dead |= self.enter(r, live)
        return dead

    def add(self, user: User, operands: Iterable[Operand]) -> None:
        """Enter the uses of `operands` by `user`."""
        for x in operands:
            v = x if x.__class__ is Value else value_named(x)
            if v is None:
                continue
            if v.users:
                v.users.append(user)
            else:
                v.users = [user]

    def remove(self, user: User, operands: Iterable[Operand]) -> list[Value]:
        """Take out one use by `user` of each of `operands`; the values of which few uses are left, and tuples."""
        rare: list[Value] = []
        for x in operands:
            v = x if x.__class__ is Value else value_named(x)
            if v is None:
                continue
            entries = v.users
            left = len(entries) - 1
            if left < _OFTEN:
                entries.remove(user)
            else:
                left -= self._stale.get(v, 0)
                self._stale[v] = len(entries) - left
                if not left:
                    entries.clear()
                    del self._stale[v]
            if left <= _FEW or v.type.__class__ is TupleType:  # perhaps no longer used whole
                rare.append(v)
        return rare

    def forget(self, user: User) -> None:
        """Drop the index of the operands of `user`, which get replaced."""
        self._wide.pop(user, None)

    def count(self, v: Value) -> int:
        """How many times `v` is used."""
        n = len(v.users)
        return n if n <= _OFTEN else n - self._stale.get(v, 0)

    def ops(self, v: Value) -> list[Op]:
        """The ops that use `v`, each once."""
        users = v.users
        return [u for u in (users if len(users) < 2 else self.of(v)) if u.__class__ is Op]

    def of(self, v: Value) -> dict[User, None]:
        """The users of `v`, each once."""
        return dict.fromkeys(self._live(v))

    def _live(self, v: Value) -> list[User]:
        """The entries of `v`; those that are gone are dropped."""
        users = v.users
        if self._stale and self._stale.pop(v, 0):
            users[:] = [u for u in dict.fromkeys(users) for _ in range(self._uses_by(u, v))]
        return users

    def _uses_by(self, user: User, v: Value) -> int:
        alive = user.slot if isinstance(user, Op) else user in self._order.heads
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

    def replace(self, v: Value, by: Operand, keep: Op | None) -> Iterable[User]:
        """Replace `v`, of which no element is used, by `by` in every user except `keep`. Returns the changed users."""
        entries = self._live(v) if self._stale else v.users
        users: Iterable[User] = entries if len(entries) == 1 else dict.fromkeys(entries)
        stay: list[User] = []
        if keep is not None and keep in users:
            stay = [u for u in entries if u is keep]
            entries = [u for u in entries if u is not keep]
            users = dict.fromkeys(entries)
        for user in users:
            operands = user.operands if user.__class__ is Op else operands_of(user)
            if len(operands) == 2 and user.__class__ is Op:  # the usual case
                x, y = operands
                user.operands = (by if x is v else x, by if y is v else y)
            elif len(operands) > _WIDE:
                places = self.places(user, v)
                self._put(user, places, [by] * len(places))
            elif isinstance(user, Op):
                user.operands = tuple([by if x is v else x for x in operands])
            else:
                user.results[:] = [by if x is v else x for x in operands]
        v.users = stay
        if (target := by if by.__class__ is Value else value_named(by)) is not None:
            if target.users:
                target.users += entries
            else:
                target.users = [*entries]
        return users

    def rewrite(self, v: Value, new: Callable[[Operand], Operand], keep: Op | None) -> Iterable[User]:
        """Put `new(operand)` in the place of every operand that names `v` or an element of it except for those of `keep`."""
        users = [u for u in self.of(v) if u is not keep]
        for user in users:
            operands, places = operands_of(user), self.places(user, v)
            changed = [new(operands[i]) for i in places]
            self._put(user, places, changed)
            self.add(user, changed)
        v.users = [keep] * self._uses_by(keep, v) if keep is not None else []
        return users

    def _put(self, user: User, places: Sequence[int], changed: Sequence[Operand]) -> None:
        """Let `user` have `changed` at `places`, all of which named one value."""
        operands = list(user.operands) if isinstance(user, Op) else user.results
        if (index := self._wide.get(user)) is not None and (old := value_named(operands[places[0]])) is not None:
            del index[old]
        for i, x in zip(list(places), changed, strict=True):
            operands[i] = x
            if index is not None and (value := value_named(x)) is not None:
                index[value].append(i)
        if isinstance(user, Op):
            user.operands = tuple(operands)


def operands_of(user: User) -> Sequence[Operand]:
    """The operands of an op, the results of a region."""
    return user.operands if user.__class__ is Op else user.results


def value_named(x: Operand) -> Value | None:
    """The value that an operand names."""
    if isinstance(x, Value):
        return x
    return x.value if isinstance(x, Element) else None
