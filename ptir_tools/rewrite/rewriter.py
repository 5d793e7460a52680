"""The only way to change a program inside a pass: edits that keep users, order, results, annotations and names right.

A rewriter serves one function or isolated region together with the regions nested in it that capture values. It builds its
tables in one sweep; the cost of an edit is that of its ops; `finish` writes the bodies back, and the rewriter may continue until
the block gets another one. Specification: PTIR rewrite system, "Program rewriter".
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from types import TracebackType

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Dialect, Guard, Program
from ptir_tools.core.ir import Function, Op, OpDef, Operand, Region, Value, may_fail
from ptir_tools.rewrite.annotations import Annotations
from ptir_tools.rewrite.edits import Edits
from ptir_tools.rewrite.order import Order
from ptir_tools.rewrite.uses import Uses, value_named

_FEW = 64  # users of a value, or new ops, that are looked at


class Rewriter(Edits):
    """Edits `block` for passes. It knows what may be replaced, what is dead and who has finished, and writes the result back."""

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
        super().__init__(block, dialect, diagnostics, live=live, program=program)
        self.program = program
        self._runs: dict[Region, int] | None = None
        self.diagnostics = diagnostics
        self._earlier = 0  # the number of edits before `edits`
        self._written = 0  # the number of `edits` that the bodies reflect
        block.edition += 1  # what ops and values say of themselves is from now on said by this rewriter
        self._edition = block.edition
        self.refused: set[Op] = set()  # roots that stay to keep an error; another use of the failing op may free them
        self._settled: dict[Hashable, tuple[int, int]] = {}
        self._guard: Guard | None = None
        self._swept = -1  # the edit count at which nothing was dead
        if live and self._definers is None:
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

    # What may be replaced

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

    # What is dead

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

    # Who has finished

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
