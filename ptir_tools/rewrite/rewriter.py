"""The only way to change a program inside a pass: edits that keep users, order, results, annotations and names right.

A rewriter serves one function or isolated region together with the regions nested in it that capture values. It builds its
tables in one sweep; the cost of an edit is that of its ops; `finish` writes the bodies back, and the rewriter may continue until
the block gets another one. Specification: PTIR rewrite system, "Program rewriter".
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from enum import Enum, auto
from types import TracebackType

from ptir_tools.core.declare import OPS
from ptir_tools.core.definers import Definers
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Dialect, Guard, Program
from ptir_tools.core.ir import (
    NO_USERS,
    Attribute,
    Element,
    Function,
    Literal,
    Op,
    OpDef,
    Operand,
    Region,
    Value,
    create,
    may_fail,
    operand_type,
)
from ptir_tools.core.types import UNTYPED, TupleType, Type
from ptir_tools.core.violations import Violation
from ptir_tools.rewrite.annotations import Annotations
from ptir_tools.rewrite.inspector import Inspector
from ptir_tools.rewrite.order import Order
from ptir_tools.rewrite.uses import User, Uses, value_named


class Event(Enum):
    """An edit of an op, for listeners."""

    INSERTED = auto()
    CHANGED = auto()  # its operands, attributes or regions
    FREED = auto()  # its results lost a use, and few are left


_FEW = 64  # users of a value, or new ops, that are looked at

INSERTED, CHANGED, FREED = Event.INSERTED, Event.CHANGED, Event.FREED  # made for every edit


class Rewriter(Inspector):
    """Edits `block`. `listen(op, event)` is called for edits that may let a pattern match."""

    def __init__(
        self,
        block: Region,
        dialect: Dialect,
        diagnostics: Diagnostics | None = None,
        *,
        live: bool = False,
        program: Program | None = None,
    ) -> None:
        """`live`: dead ops are left out from the start. `program`: the program of a region, where its other rewriters are
        finished."""
        self._definers = Definers.of(block, dialect, program)
        self.kept: set[Op] = set()  # unused ops that stay because they define a symbol
        live = live and self._definers is None
        super().__init__(block, live=live)
        self.dialect = dialect
        self.program = program
        self._runs: dict[Region, int] | None = None
        self.diagnostics = diagnostics
        self.listen: Callable[[Op, Event], None] | None = None
        self.edits = 0  # the number of edits since it was made or resumed
        self._earlier = 0  # the number before that
        self._written = 0  # the number of `edits` that the bodies reflect
        block.edition += 1  # what ops and values say of themselves is from now on said by this rewriter
        self._edition = block.edition
        self._new: set[Value] = set()
        self.refused: set[Op] = set()  # roots that stay to keep an error; another use of the failing op may free them
        self._failing: bool | None = None  # whether an op here may fail at run time; None: unknown
        self._journal: list[Op] | None = None  # the ops changed since the last `mark_done`
        self._settled: dict[Hashable, tuple[int, int]] = {}
        self._guard: Guard | None = None
        self._annotations = Annotations(block, diagnostics)
        self._swept = -1  # the edit count at which nothing was dead
        if live:
            self._leave_out()

    def __enter__(self) -> Rewriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.finish()

    def runs(self, region: Region) -> int:
        """How often the ops of the program run `region`: at least as often as now."""
        if self._runs is None:
            self._runs = {}
            blocks = self.program.blocks() if self.program is not None else ()
            for r in (r for b in blocks for op in b.body if op.regions for r in op.regions):
                self.runs_again(r)
        return self._runs.get(region, 0)

    def runs_again(self, region: Region) -> None:
        """Count one more op that runs `region`, where runs are counted."""
        if self._runs is not None:
            self._runs[region] = self._runs.get(region, 0) + 1

    # Ops that may fail

    def drops_failure(self, root: Op, kept: Iterable[Operand]) -> bool:
        """Whether an op that may fail at run time would become dead without `root`, although `kept` is used, or is `root` itself:
        its error would vanish (docs/ptir.md, "Errors at run time"). An op that new ops of its kind replace is not lost."""
        if self._failing is None:
            self._failing = any(op.defn.fails is not None or op.regions for op in self.order.current_ops())
        if not (self._failing and self._drops_failure(root, kept)):
            return False
        self.refused.add(root)
        return True

    def _drops_failure(self, root: Op, kept: Iterable[Operand]) -> bool:
        stay: set[Value] = set()
        kinds: set[OpDef] = set()  # of new ops
        operands = list(kept)
        while operands:
            v = value_named(operands.pop())
            if v is None or v in stay:
                continue
            stay.add(v)
            if v.op is not None and (not v.op.slot or v in self._new) and len(stay) < _FEW:
                kinds.add(v.op.defn)
                operands += v.op.operands
        if not stay.isdisjoint(root.results):
            return False
        if not root.regions and root.defn not in kinds and may_fail(root):
            return True
        dying, todo = {root}, [root]
        while todo:
            for x in todo.pop().operands:
                v = value_named(x)
                if v is None or (op := v.op) is None or op in dying or op.defn.is_constant or not stay.isdisjoint(op.results):
                    continue
                users = [u for w in op.results for u in (w.users if len(w.users) < _FEW else (self.block,))]
                if all(u in dying for u in users):
                    if op.defn not in kinds and may_fail(op):
                        return True
                    dying.add(op)
                    todo.append(op)
        return False

    def take_back(self, x: Operand) -> None:
        """Erase the new ops that define `x`, if they have no uses. Listeners are not called."""
        listen, journal, self.listen, self._journal = self.listen, self._journal, None, None
        operands = [x]
        while operands:
            v = value_named(operands.pop())
            if v in self._new and v.op is not None and v.op.slot and self.unused(v.op):
                operands += v.op.operands
                self._forget(v.op)
                self.edits -= 1
        self.listen, self._journal = listen, journal

    # Replacing

    def replace_all_uses(self, v: Value, by: Operand) -> None:
        """Replace `v` by `by` in ops, block results and nested blocks; the definition of `by` keeps its own.

        A value inserted by this rewriter that has no name takes that of `v`. Annotations that name `v` are dropped.
        Raises TypeError unless both have the identical type.
        """
        self._put(v, by)
        self._all_lost(v)

    def accepts(self, v: Value, by: Operand) -> bool:
        """Like the inspector's method, and also whether no error vanishes (`drops_failure`). Results may have the names of their
        values (`Dialect.renames_results`). There a value that becomes a result must be made by an op and not be a result
        already."""
        named = self.dialect.renames_results and self.is_result(v)
        if named and (not isinstance(by, Value) or by.op is None or self.is_result(by)):
            return False
        if not (super().accepts(v, by) and self.allows([(v, by)])):
            return False
        return v.op is None or not self.drops_failure(v.op, (by,))

    def allows(self, given: Iterable[tuple[Value, Operand]]) -> bool:
        """Whether the dialect allows these replacements, one after the other; its `guard` is made on first use."""
        if self.dialect.guard is None:
            return True
        if self._guard is None:
            self._guard = self.dialect.guard(self)
        return self._guard(given)

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

    def _leave_out(self) -> None:
        """Count the ops that were left out from the start as erased."""
        self.edits = self._swept = len(self.left_out)
        in_order = (op for op in self.block.ops() if op in self.left_out)  # not in that of a set: what is said has one order
        for op in in_order if self._annotations.naming else ():
            self._annotations.drop_naming(op.results, "was erased")

    def erase_dead(self) -> int:
        """Erase ops without effect and users, last to first, so that ops that only they used are erased, too. Returns how
        many, with those that were left out from the start."""
        erased = len(self.left_out)
        self.left_out.clear()
        if self._swept != self._earlier + self.edits:
            erased += self._sweep()
            self._swept = self._earlier + self.edits
        return erased

    def _sweep(self) -> int:
        before = self.edits
        for block in self.blocks():
            if block is self.block or block in self.owner:  # else it went with its op
                for op in reversed(self.body(block)):
                    if op.defn.is_pure:
                        for v in op.results:
                            if v.users:
                                break
                        else:
                            if not self._stays(op):
                                self.edits += 1
                                self._forget(op)
        erased = self.edits - before
        return erased + self._sweep() if erased and self.kept else erased  # a definer may come before what mentions its symbol

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

    def mark_done(self, who: Hashable) -> None:
        """Record that `who` is at a fixpoint here."""
        if self._journal is None:
            self._journal = []
        self._settled[who] = self._earlier + self.edits, len(self._journal)

    def is_done(self, who: Hashable) -> bool:
        """Whether nothing was edited since `mark_done(who)`."""
        return who in self._settled and self._settled[who][0] == self._earlier + self.edits

    def touched_since_done(self, who: Hashable) -> list[Op] | None:
        """The ops touched since `mark_done(who)`, some perhaps erased. None if it was never called, or if they are most of the
        block."""
        if (cached := self._settled.get(who)) is None or self._journal is None:
            return None
        touched = self._journal[cached[1] :]
        return touched if len(touched) < self.order.count else None

    def body(self, block: Region | None = None) -> list[Op]:
        block = block or self.block
        return self.order.body(block) if self.edits != self._written else [*block.body]

    # Snapshots

    def restore(self, before: Snapshot) -> None:
        """Restore the block from the snapshot `before`, and rebuild the tables."""
        before.put_back()
        self.order, self.owner = Order(), {}
        self.uses_of = Uses(self.order)
        self.refused.clear()
        self._versions.clear()
        self._changes.clear()
        self._take_in(self.block)
        self.left_out = set(before.left_out)
        self._new &= {v for v, _, _ in before.values}
        self._journal, self._settled, self._swept = None, {}, -1
        self._annotations = Annotations(self.block, self.diagnostics)
        self.edits += 1

    # Writing back

    def _drop_open_annotations(self) -> None:
        """Drop the annotations with values that are now used outside of them and not exported."""
        self._annotations = Annotations(self.block, self.diagnostics)  # a pass may have made some
        for a in self._annotations.all():
            results = dict.fromkeys(v for op in a.body for v in op.results)
            inner = (v for v in results if v not in a.exports)
            used = (v for v in inner if self.is_result(v) or any(r not in results for u in self.users_of(v) for r in u.results))
            if (v := next(used, None)) is not None:
                self._annotations.drop(a, v, "is used outside of it")

    def finish(self, *, naming: bool = True) -> None:
        """Write the bodies back; `naming`: new values without a name get the next free number, upward."""
        if self.edits == self._written:
            return
        self._drop_open_annotations()
        for block in self.order.heads:
            block.body[:] = self.order.body(block)
        if naming:
            self._name_new()
        self._written = self.edits
        self.block.edition += 1
        self._edition = self.block.edition

    def resume(self) -> bool:
        """Continue after `finish`; False if the block had another rewriter since, so that a new one is needed."""
        if self.block.edition != self._edition or self.edits != self._written:
            return False
        self._earlier += self.edits
        self.edits = self._written = 0
        self._runs = None
        self._annotations = Annotations(self.block, self.diagnostics)
        return True

    def _name_new(self) -> None:
        nameless = {v for v in self._new if not v.name}
        self._new.clear()
        if not nameless:
            return
        values = [*self.block.params, *[v for b in self.order.heads for op in b.body for v in op.results]]
        values += [p for b in self.owner for p in b.params]
        names = [v.name for v in values]
        first = max(map(int, filter(str.isdecimal, names)), default=-1) + 1
        for number, v in enumerate([v for v in values if v in nameless], first):
            v.name = str(number)


class Snapshot:
    """A snapshot of a rewriter's block and nested blocks: ops in order with their fields, results, names, annotations, and the
    number of diagnostics."""

    def __init__(self, rw: Rewriter) -> None:
        self.blocks = [(b, rw.body(b), [*b.params], [*b.results], [*b.result_types]) for b in rw.blocks()]
        ops = [op for _, body, *_ in self.blocks for op in body]
        self.ops = [(op, op.defn, op.operands, op.attrs, op.results, op.regions) for op in ops]
        values = [v for op in ops for v in op.results]
        values += [p for _, _, params, *_ in self.blocks for p in params]
        self.values = [(v, v.type, v.name) for v in values]
        self.left_out = set(rw.left_out)
        self.function = rw.block if isinstance(rw.block, Function) else None
        self.annotations = [*self.function.annotations] if self.function is not None else []
        self.diagnostics = rw.diagnostics
        self.reported = len(rw.diagnostics.items) if rw.diagnostics is not None else 0

    def put_back(self) -> None:
        """Restore the block; the rewriter's tables are then out of date."""
        for op, defn, operands, attrs, results, regions in self.ops:
            op.defn, op.operands, op.attrs, op.results, op.regions = defn, operands, attrs, results, regions
        for v, t, name in self.values:
            v.type, v.name = t, name
        for block, body, params, returned, types in self.blocks:
            block.body[:], block.params[:], block.results[:], block.result_types[:] = body, params, returned, types
        if self.function is not None:
            self.function.annotations[:] = self.annotations
        if self.diagnostics is not None:
            del self.diagnostics.items[self.reported :]


def _element(x: Operand, index: int) -> Element:
    if not isinstance(x, Value):
        raise TypeError("an element of an element cannot be written")
    return Element(x, index)
