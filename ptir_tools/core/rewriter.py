"""The only way to change a program inside a pass: edits that keep users, order, results, hints and names right.

A rewriter serves one function or isolated region together with the regions nested in it that capture values. It builds its
tables in one sweep; an edit costs what it touches; `finish` writes the bodies back. Specification: PTIR rewrite system,
"Program rewriter".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any

from ptir_tools.core.diagnostics import Diagnostics, Violation
from ptir_tools.core.dialect import Dialect
from ptir_tools.core.ir import Element, Function, Hint, Literal, Op, Operand, Region, Value
from ptir_tools.core.opdef import OPS, OpDef, create, operand_type
from ptir_tools.core.order import Order
from ptir_tools.core.types import UNTYPED, Type
from ptir_tools.core.uses import Uses, operands_of, value_named
from ptir_tools.core.verify import compatible


class Rewriter:
    """Edits of `block`. `listen(op, True)` is called when `op` was inserted or got other operands, `listen(op, False)` when
    its results lost a use."""

    def __init__(self, block: Region, dialect: Dialect, diagnostics: Diagnostics | None = None) -> None:
        self.block = block
        self.dialect = dialect
        self.diagnostics = diagnostics
        self.listen: Callable[[Op, bool], None] | None = None
        self.edits = 0  # how many changes there were
        self.order = Order()
        self.owner: dict[Region, Op] = {}  # the op that a nested block belongs to
        self._uses = Uses(self.order)
        self._versions: dict[Op, int] = {}
        self._new: set[Value] = set()
        self._hints: defaultdict[Value, list[Hint]] = defaultdict(list)
        self._take_in(block)
        if isinstance(block, Function):
            for hint in block.hints:
                for v in _named_by(hint):
                    self._hints[v].append(hint)

    def __enter__(self) -> Rewriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.finish()

    def _take_in(self, block: Region) -> None:
        stack = [block]
        while stack:
            b = stack.pop()
            self.order.add_block(b)
            self._uses.add_ops(b.body)
            for op in b.body:
                for r in op.regions:
                    if not r.isolated:
                        self.owner[r] = op
                        stack.append(r)
            self._uses.add(b, b.results)

    # Inspection

    def op(self, v: Value) -> Op | None:
        """The op that defines `v`; None for a parameter."""
        return v.op

    inst_of = op

    def operands(self, op: Op) -> tuple[Operand, ...]:
        """The operands of `op`."""
        return op.operands

    def value_of(self, op: Op) -> Value:
        """The first result of `op`."""
        return op.results[0]

    def type_of(self, x: Operand) -> Type:
        """The type of an operand."""
        return operand_type(x)

    def alive(self, op: Op) -> bool:
        """Whether `op` stands in the program."""
        return op in self.order.slots

    def version(self, op: Op) -> int:
        """How often the operands or attributes of `op` have changed."""
        return self._versions.get(op, 0)

    def uses(self, v: Value) -> int:
        """How many times `v` is used, as an operand or a result."""
        return self._uses.count(v)

    def unused(self, op: Op) -> bool:
        """Whether nothing uses any result of `op`."""
        for v in op.results:  # noqa: SIM110  (asked for every op, several times)
            if self._uses.count(v):
                return False
        return True

    def users_of(self, v: Value) -> list[Op]:
        """The ops that use `v`, each once."""
        return self._uses.ops(v)

    def is_result(self, v: Value) -> bool:
        """Whether a block returns `v` or an element of it."""
        return any(isinstance(u, Region) for u in self._uses.of(v))

    def used_whole(self, v: Value) -> bool:
        """Whether something uses the tuple `v` itself, not an element of it."""
        return any(operands_of(u)[i] is v for u in self._uses.of(v) for i in self._uses.places(u, v))

    def block_of(self, op: Op) -> Region:
        """The block in which `op` stands."""
        return self.order.block_of(op)

    def dominates(self, v: Value, op: Op) -> bool:
        """Whether `v` is defined wherever `op` stands: before it, or before an op that contains it."""
        if v.op is None:
            return True
        if v.op not in self.order:
            return False
        home, at = self.block_of(v.op), op
        while (block := self.block_of(at)) is not home:
            if block not in self.owner:
                return False
            at = self.owner[block]
        return self.order.before(v.op, at)

    def body(self, block: Region | None = None) -> Iterator[Op]:
        """The ops of `block` in order; the one just yielded may be erased."""
        return self.order.body(block or self.block)

    def blocks(self) -> Iterator[Region]:
        """The block and those nested in it that are still there, outer before inner."""
        return iter(tuple(self.order.heads))

    def accepts(self, v: Value, by: Operand) -> bool:
        """Whether the users of `v` are legal with `by` in its place: some ops refuse constants that must fail at run time."""
        checked = [u for u in self.users_of(v) if u.defn.check is not None]
        return all(_legal(u, v, by) for u in checked)

    # Edits

    def replace_all_uses(self, v: Value, by: Operand) -> None:
        """Let everything that uses `v` use `by`, in ops, block results and nested blocks; the definition of `by` keeps its own.

        A value inserted by this rewriter that has no name takes that of `v`. Hints that name `v` are dropped.
        Raises TypeError unless both have the identical type.
        """
        if operand_type(by) is not v.type:
            raise TypeError(f"replacement of %{v.name}: {v.type} by {operand_type(by)}")
        target = value_named(by)
        self._drop_hints(v, "was replaced")
        self._hand_name(v, by)
        self._replace(v, lambda x: by if isinstance(x, Value) else _element(by, x.index), None if target is None else target.op)

    def replace_elements(self, v: Value, by: Sequence[Operand]) -> bool:
        """Let every use of element `i` of the tuple `v` use `by[i]`; False, and no change, when `v` is used whole."""
        if self.used_whole(v):
            return False
        if [operand_type(x) for x in by] != list(v.type.elements):  # type: ignore[attr-defined]
            raise TypeError(f"replacement of the elements of %{v.name}: {v.type}")
        self._drop_hints(v, "was replaced")
        self._replace(v, lambda x: by[x.index] if isinstance(x, Element) else x, None)
        return True

    def _replace(self, v: Value, new: Callable[[Any], Operand], keep: Op | None) -> None:
        users = self._uses.replace(v, new, keep)
        self.edits += 1
        for user in users:
            if isinstance(user, Op):
                self._changed(user)
        self._lost_use(v)

    def _hand_name(self, v: Value, by: Operand) -> None:
        if isinstance(by, Value) and by in self._new and not by.name and v.op is not None:
            by.name, v.name = v.name, ""
            self._new.add(v)

    def set_operands(self, op: Op, operands: Sequence[Operand]) -> None:
        """Give `op` other operands of the same types; its results stay what they are."""
        old = op.operands
        self._uses.forget(op)
        op.operands = tuple(operands)
        self._uses.add(op, op.operands)
        self._remove_uses(op, old)
        self.edits += 1
        self._changed(op)
        for v in op.results:
            self._drop_hints(v, "is computed in another way")

    def set_attribute(self, op: Op, name: str, value: Any) -> None:
        """Give `op` another value of the attribute `name`; its result types stay what they are. Raises KeyError."""
        at = op.defn.attr_index[name]
        op.attrs = (*op.attrs[:at], value, *op.attrs[at + 1 :])
        self.edits += 1
        self._changed(op)
        for v in op.results:
            self._drop_hints(v, "is computed in another way")

    def set_attrs(self, op: Op, **attrs: Any) -> None:
        """Give `op` other values of some attributes; its results keep their types until they are retyped."""
        named = {a.name: v for a, v in zip(op.defn.attrs, op.attrs, strict=True)}
        op.attrs = op.defn.fill(named | attrs)
        self.edits += 1
        self._changed(op)

    def retype(self, v: Value, t: Type) -> None:
        """Give a value another type: where more is known of it than before, or its op says so now."""
        v.type = t
        self.edits += 1

    def set_regions(self, op: Op, regions: tuple[Region, ...]) -> None:
        """Let `op` refer to other isolated regions of the same signatures."""
        op.regions = regions
        self.edits += 1
        self._changed(op)

    def set_results(self, block: Region, results: Sequence[Operand]) -> None:
        """Let `block` return other operands; its declared types follow."""
        old = block.results
        self._uses.forget(block)
        block.results = list(results)
        block.result_types = [operand_type(x) for x in results]
        self._uses.add(block, block.results)
        self._remove_uses(block, old)
        self.edits += 1

    def erase(self, op: Op) -> None:
        """Take `op` out, with the blocks nested in it. Raises ValueError when a result is still used."""
        if not self.unused(op):
            raise ValueError(f"{op.name} %{op.results[0].name} is erased while it is used")
        self.edits += 1
        self._forget(op)

    def _forget(self, op: Op) -> None:
        self.order.remove(op)
        for r in op.regions:
            if r in self.owner:
                for inner in reversed(list(self.order.body(r))):
                    self._forget(inner)
                del self.owner[r], self.order.heads[r]
                self._remove_uses(r, r.results)
        self._remove_uses(op, op.operands)
        for v in op.results:
            self._drop_hints(v, "was erased")

    def insert_before(self, at: Op, op: Op) -> Value:
        """Put the new `op` before `at`; its place in the source is that of `at` when it has none. Returns its first result."""
        return self._insert(op, self.block_of(at), at, at.loc)

    def move_before(self, at: Op, op: Op) -> None:
        """Put `op`, which stands elsewhere, before `at`; what it uses is defined there, and what uses it comes later."""
        self.order.remove(op)
        self.order.insert(op, self.block_of(at), at)
        self.edits += 1

    def append(self, block: Region, op: Op) -> Value:
        """Put the new `op` at the end of `block`."""
        return self._insert(op, block, None, block.loc)

    def _insert(self, op: Op, block: Region, before: Op | None, loc: int) -> Value:
        op.loc = op.loc or loc
        self.order.insert(op, block, before)
        self._uses.add(op, op.operands)
        for r in op.regions:
            if not r.isolated:
                self.owner[r] = op
                self._take_in(r)
        self._new.update(op.results)
        self.edits += 1
        if self.listen is not None:
            self.listen(op, True)
        return op.results[0] if op.results else Value(UNTYPED, "", op)

    def build(
        self,
        at: Op,
        defn: OpDef | str,
        *groups: Operand | Sequence[Operand] | None,
        types: Sequence[Type] | None = None,
        regions: Sequence[Region] = (),
        **attrs: Any,
    ) -> Value:
        """Insert the op `defn` (a declaration or its short name) before `at`. Raises Violation when it is not well typed."""
        if isinstance(defn, str):
            defn = OPS[f"{self.dialect.name}.{defn}"]
        return self.insert_before(at, create(defn, groups, attrs, types=types, regions=regions))

    def materialize_constant(self, at: Op, literal: Literal) -> Value:
        """A new constant op before `at`."""
        return self.insert_before(at, create(OPS[self.dialect.constant], (), {"value": literal}, types=[literal.type]))

    # Bookkeeping

    def _changed(self, op: Op) -> None:
        self._versions[op] = self._versions.get(op, 0) + 1
        if self.listen is not None:
            self.listen(op, True)

    def _remove_uses(self, user: Op | Region, operands: Sequence[Operand]) -> None:
        """Take out the uses of `operands` by `user`, all before anybody is told."""
        for v in self._uses.remove(user, operands):
            self._lost_use(v)

    def _lost_use(self, v: Value) -> None:
        if self.listen is not None and v.op in self.order.slots:
            self.listen(v.op, False)

    def _drop_hints(self, v: Value, why: str) -> None:
        if not self._hints or not (hints := self._hints.get(v)) or not isinstance(self.block, Function):
            return
        for hint in list(hints):
            self.block.hints.remove(hint)
            for named in _named_by(hint):
                self._hints[named].remove(hint)
            if self.diagnostics is not None:
                report = self.diagnostics.warning if hint.policy == "Required" else self.diagnostics.note
                report("HintDropped", f"hint {hint.id} is dropped: %{v.name} {why}", hint.loc)

    # Ending and checking

    def finish(self, *, naming: bool = True) -> None:
        """Write the bodies back; `naming`: new values without a name get the next free number, upward."""
        if not self.edits:
            return
        for block in self.order.heads:
            block.body[:] = self.order.body(block)
        if naming:
            self._name_new()

    def _name_new(self) -> None:
        fresh = [v for v in self._new if not v.name]
        if not fresh:
            return
        nameless = set(fresh)
        values = [*self.block.params, *(v for b in self.order.heads for op in b.body for v in op.results)]
        values += [p for b in self.owner for p in b.params]
        number = max((int(v.name) for v in values if v.name.isdecimal()), default=-1)
        for v in values:
            if v in nameless:
                number += 1
                v.name = str(number)

    def verify_op(self, op: Op) -> str | None:
        """What is wrong with `op` alone: an operand that is not defined before it, or a type that its rule does not give."""
        for v in op.values():
            if not self.dominates(v, op):
                return f"{op.name} %{op.results[0].name if op.results else ''} uses %{v.name} before its definition"
        inferred = op.defn.result_types(tuple(map(operand_type, op.operands)), op.attrs, op.regions)
        if len(inferred) != len(op.results):
            return f"{op.name} has {len(op.results)} results for {len(inferred)}"
        for v, t in zip(op.results, inferred, strict=True):
            if not compatible(v.type, t):
                return f"{op.name} %{v.name} is {v.type}, its rule gives {t}"
        return None

    def verify(self) -> list[str]:
        """What is wrong with the whole block, tables included; empty when all is well."""
        faults = [f for b in self.order.heads for op in self.order.body(b) if (f := self.verify_op(op)) is not None]
        counted: defaultdict[Value, int] = defaultdict(int)
        for b in self.order.heads:
            for x in (*(x for op in self.order.body(b) for x in op.operands), *b.results):
                if (v := value_named(x)) is not None:
                    counted[v] += 1
        wrong = [v for v in {*counted, *self._uses.values()} if self.uses(v) != counted.get(v, 0)]
        faults += [f"%{v.name} has {counted.get(v, 0)} uses, the table says {self.uses(v)}" for v in wrong]
        return faults


def _legal(user: Op, v: Value, by: Operand) -> bool:
    operands = tuple(by if x is v else x for x in user.operands)
    try:
        if user.defn.check is not None:
            user.defn.check(Op(user.defn, operands, user.attrs, user.results, user.regions, user.loc))
    except Violation:
        return False
    return True


def _element(x: Operand, index: int) -> Element:
    if not isinstance(x, Value):
        raise TypeError("an element of an element cannot be written")
    return Element(x, index)


def _named_by(hint: Hint) -> dict[Value, None]:
    inner = (v for op in hint.body for v in (*op.values(), *op.results))
    return dict.fromkeys((*hint.inputs, *hint.exports, *inner))
