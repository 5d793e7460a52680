"""Edits of one op each that keep users, order, annotations and names right: the half of the rewriter that changes the program.

Specification: PTIR rewrite system, "Program rewriter".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto

from ptir_tools.core.declare import OPS
from ptir_tools.core.definers import Definers
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Dialect, Program
from ptir_tools.core.ir import (
    NO_USERS,
    Attribute,
    Element,
    Literal,
    Op,
    OpDef,
    Operand,
    Region,
    Value,
    create,
    operand_type,
)
from ptir_tools.core.types import UNTYPED, TupleType, Type
from ptir_tools.core.violations import Violation
from ptir_tools.rewrite.annotations import Annotations
from ptir_tools.rewrite.inspector import Inspector
from ptir_tools.rewrite.uses import User, value_named


class Event(Enum):
    """An edit of an op, for listeners."""

    INSERTED = auto()
    CHANGED = auto()  # its operands, attributes or regions
    FREED = auto()  # its results lost a use, and few are left


INSERTED, CHANGED, FREED = Event.INSERTED, Event.CHANGED, Event.FREED  # made for every edit


class Edits(Inspector):
    """Edits of `block`, which count themselves in `edits`. `listen(op, event)` is called for those that may let a pattern match,
    and `journal` gets the ops of them."""

    def __init__(
        self, block: Region, dialect: Dialect, diagnostics: Diagnostics | None, *, live: bool, program: Program | None
    ) -> None:
        self._definers = Definers.of(block, dialect, program)
        self.kept: set[Op] = set()  # unused ops that stay because they define a symbol
        super().__init__(block, live=live and self._definers is None)
        self.dialect = dialect
        self.listen: Callable[[Op, Event], None] | None = None
        self.edits = 0  # the number of edits since it was made or resumed
        self._new: set[Value] = set()
        self._failing: bool | None = None  # whether an op here may fail at run time; None: unknown
        self._journal: list[Op] | None = None  # the ops changed since the last `Rewriter.mark_done`
        self._annotations = Annotations(block, diagnostics)

    # Replacing

    def replace_all_uses(self, v: Value, by: Operand) -> None:
        """Replace `v` by `by` in ops, block results and nested blocks; the definition of `by` keeps its own.

        A value inserted by this rewriter that has no name takes that of `v`. Annotations that name `v` are dropped.
        Raises TypeError unless both have the identical type.
        """
        self._put(v, by)
        self._all_lost(v)

    def replace(self, op: Op, by: Operand) -> None:
        """Replace the result of `op` by `by`, and erase `op`. Raises as `replace_all_uses` and `erase` do."""
        v = op.results[0]
        self._put(v, by)
        if v.users:
            raise ValueError(f"{op.name} %{v.name} is replaced by what uses it")
        if not self._stays(op):
            self._forget(op)

    def replace_elements(self, v: Value, by: Sequence[Operand]) -> bool:
        """Replace every element `i` of the tuple `v` by `by[i]`; False, and no change, if `v` itself is used."""
        if self.used_whole(v):
            return False
        if [operand_type(x) for x in by] != list(v.type.elements):  # type: ignore[attr-defined]
            raise TypeError(f"replacement of the elements of %{v.name}: {v.type}")
        self._annotations.drop_naming((v,), "was replaced")
        self._replaced(self.uses_of.rewrite(v, lambda x: by[x.index] if isinstance(x, Element) else x, None))
        self._all_lost(v)
        return True

    def _put(self, v: Value, by: Operand) -> None:
        target = by if by.__class__ is Value else value_named(by)
        if (by.type if target is by else operand_type(by)) is not v.type:
            raise TypeError(f"replacement of %{v.name}: {v.type} by {operand_type(by)}")
        keep = None if target is None else target.op
        if self._annotations.naming:
            self._annotations.drop_naming((v,), "was replaced")
        if target is by and target in self._new and not target.name and v.op is not None:
            target.name, v.name = v.name, ""
            self._new.add(v)
        if isinstance(v.type, TupleType):
            users = self.uses_of.rewrite(v, lambda x: _element(by, x.index) if isinstance(x, Element) else by, keep)
        else:
            users = self.uses_of.replace(v, by, keep)
        self._replaced(users)

    def _replaced(self, users: Iterable[User]) -> None:
        self.edits += 1
        self._changes.extend(users)
        listen, journal = self.listen, self._journal
        if listen is None and journal is None:
            return
        for user in users:
            if user.__class__ is Op:
                if listen is not None:
                    listen(user, CHANGED)
                if journal is not None:
                    journal.append(user)

    # Changing in place

    def set_operands(self, op: Op, operands: Sequence[Operand]) -> None:
        """Set operands of `op`, of the same types; the types of its results stay."""
        old = op.operands
        self.uses_of.forget(op)
        op.operands = tuple(operands)
        self.uses_of.add(op, op.operands)
        self._remove_uses(op, old)
        self._reworked(op)

    def set_attribute(self, op: Op, name: str, value: object) -> None:
        """Give `op` another value of the attribute `name`; its result types stay what they are. Raises KeyError."""
        at = op.defn.attr_index[name]
        op.attrs = (*op.attrs[:at], value, *op.attrs[at + 1 :])
        self._reworked(op)

    def set_attrs(self, op: Op, **attrs: object) -> None:
        """Give `op` other values of some attributes; its results keep their types until they are retyped."""
        named = {a.name: v for a, v in zip(op.defn.attrs, op.attrs, strict=True)}
        op.attrs = op.defn.fill(named | attrs)
        self._reworked(op)

    def has_constant(self, literal: Literal) -> bool:
        """Whether the constant op of the dialect takes `literal`: MIND, say, has no constants without elements."""
        try:
            OPS[self.dialect.constant].result_types((), (literal,))
        except Violation:
            return False
        return True

    def become_constant(self, op: Op, literal: Literal) -> None:
        """Turn `op`, whose one result has the type of `literal`, into the constant op of the dialect."""
        old, d = op.operands, OPS[self.dialect.constant]
        self.uses_of.forget(op)
        self._forget_blocks(op)
        op.defn, op.operands, op.attrs, op.regions = d, (), (literal,), ()
        self._remove_uses(op, old)
        self._reworked(op)

    def set_regions(self, op: Op, regions: tuple[Region, ...]) -> None:
        """Give `op` other isolated regions of the same signatures."""
        op.regions = regions
        self._reworked(op)

    def _reworked(self, op: Op) -> None:
        self.edits += 1
        self._changed(op)
        if self._annotations.naming:
            self._annotations.drop_naming(op.results, "is computed in another way")

    def retype(self, v: Value, t: Type) -> None:
        """Give a value another type, because more is known about it, or because its op has changed."""
        v.type = t
        self.edits += 1
        if v.op is not None:
            self._changed(v.op)

    def set_results(self, block: Region, results: Sequence[Operand], types: Sequence[Type] | None = None) -> None:
        """Set the results of `block`, and declare `types`, by default those of the operands."""
        old = block.results
        self.uses_of.forget(block)
        block.results = list(results)
        block.result_types = list(types if types is not None else map(operand_type, results))
        self.uses_of.add(block, block.results)
        self._remove_uses(block, old)
        self.edits += 1

    # Taking out and putting in

    def erase(self, op: Op) -> bool:
        """Erase `op` with the blocks nested in it. Returns whether it is gone: the only op that defines a symbol which is still
        mentioned stays, unused, with its operands. Raises ValueError when a result has other uses.
        """
        if not self.unused(op):
            users = {u for v in op.results for u in self.uses_of.of(v)}
            if not users <= self.kept:
                raise ValueError(f"{op.name} %{op.results[0].name} is erased while it is used")
            self.kept.add(op)
            return False
        if self._stays(op):
            return False
        self.edits += 1
        self._forget(op)
        return True

    def _stays(self, op: Op) -> bool:
        """Whether the unused `op` stays, because it alone defines a symbol that is needed."""
        if self._definers is None or not self._definers.needed(op):
            return False
        self.kept.add(op)
        return True

    def idle(self, op: Op) -> bool:
        """Whether `op` is unused and only stays because it defines a symbol: rewriting it is pointless."""
        return op in self.kept and self.unused(op)

    def _forget(self, op: Op) -> None:
        self.order.remove(op)
        if self._definers is not None:
            for definer in self._definers.remove(op):
                self._tell(definer, FREED)
        if op.regions:
            self._forget_blocks(op)
        self._remove_uses(op, op.operands)
        if self._annotations.naming:
            self._annotations.drop_naming(op.results, "was erased")

    def _forget_blocks(self, op: Op) -> None:
        for r in op.regions:
            if r in self.owner:
                for inner in list(self.order.backward(r)):
                    self._forget(inner)
                del self.owner[r], self.order.heads[r]
                self._remove_uses(r, r.results)

    def erase_unused(self, op: Op) -> bool:
        """Erase `op` if it has no effect and no user. Returns whether it was erased."""
        if not op.defn.is_pure:
            return False
        for v in op.results:
            if v.users:
                return False
        if self._stays(op):
            return False
        self.edits += 1
        self._forget(op)
        return True

    def insert_before(self, at: Op, op: Op) -> Value:
        """Put the new `op` before `at`; its place in the source is that of `at` when it has none. Returns its first result."""
        return self._insert(op, self.block_of(at), at, at.loc)

    def move_before(self, at: Op, op: Op) -> None:
        """Move `op` before `at`; its operands must dominate `at`, and its users come later."""
        self.order.remove(op)
        self.order.insert(op, self.block_of(at), at)
        self.edits += 1

    def append(self, block: Region, op: Op) -> Value:
        """Put the new `op` at the end of `block`."""
        return self._insert(op, block, None, block.loc)

    def _insert(self, op: Op, block: Region, before: Op | None, loc: int) -> Value:
        op.loc = op.loc or loc
        self.order.insert(op, block, before)
        for v in op.results:
            v.users = NO_USERS
        self.uses_of.add(op, op.operands)
        for r in op.regions:
            if not r.isolated:
                self.owner[r] = op
                self._take_in(r)
        self._new.update(op.results)
        if self._definers is not None:
            self._definers.add(op)
        if op.defn.fails is not None or op.regions:
            self._failing = True
        self.edits += 1
        self._tell(op, INSERTED)
        for r in op.regions:
            for inner in () if r.isolated else r.ops():
                self._tell(inner, INSERTED)
        return op.results[0] if op.results else Value(UNTYPED, "", op)

    def build(
        self,
        at: Op,
        defn: OpDef | str,
        *groups: Operand | Sequence[Operand] | None,
        types: Sequence[Type] | None = None,
        regions: Sequence[Region] = (),
        **attrs: Attribute,
    ) -> Value:
        """Insert the op `defn` (a declaration or its short name) before `at`. Raises Violation when it is not well typed."""
        if isinstance(defn, str):
            defn = OPS[f"{self.dialect.name}.{defn}"]
        return self.insert_before(at, create(defn, groups, attrs, types=types, regions=regions))

    def materialize_constant(self, at: Op, literal: Literal) -> Value:
        """A new constant op before `at`."""
        op = Op(OPS[self.dialect.constant], (), (literal,), loc=at.loc)
        op.results = (Value(literal.type, "", op),)
        return self.insert_before(at, op)

    # Listeners

    def _changed(self, op: Op) -> None:
        self._changes.append(op)
        if self._definers is not None:
            self._definers.changed(op)
        self._tell(op, CHANGED)

    def _remove_uses(self, user: User, operands: Sequence[Operand]) -> None:
        """Remove the uses of `operands` by `user`, then call listeners."""
        rare = self.uses_of.remove(user, operands)
        listen, journal = self.listen, self._journal
        if not rare or (listen is None and journal is None):
            return
        for v in rare:
            if (op := v.op) is not None and op.slot:
                if listen is not None:
                    listen(op, FREED)
                if journal is not None:
                    journal.append(op)

    def _all_lost(self, v: Value) -> None:
        if (op := v.op) is not None and op.slot:
            self._tell(op, FREED)

    def _tell(self, op: Op, event: Event) -> None:
        if self.listen is not None:
            self.listen(op, event)
        if self._journal is not None:
            self._journal.append(op)


def _element(x: Operand, index: int) -> Element:
    if not isinstance(x, Value):
        raise TypeError("an element of an element cannot be written")
    return Element(x, index)
