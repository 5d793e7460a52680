"""Queries on a block with tables of uses, order and versions: the read-only half of the rewriter.

Specification: PTIR rewrite system, "Program rewriter", and "Fast verifier per instruction".
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from ptir_tools.core.ir import MEASURES, MOVEMENT, NO_USERS, Element, Literal, Op, Operand, Region, Value, is_legal, operand_type
from ptir_tools.core.types import UNTYPED, TupleType, Type
from ptir_tools.core.verify import names_extents
from ptir_tools.core.violations import Violation
from ptir_tools.rewrite.order import Order
from ptir_tools.rewrite.uses import User, Uses, operands_of, value_named


class Inspector:
    """The tables of `block` and of the blocks nested in it that capture values, built in one sweep.

    `live`: dead ops are left out from the start.
    """

    def __init__(self, block: Region, *, live: bool = False) -> None:
        self.block = block
        self.order = Order()
        self.owner: dict[Region, Op] = {}  # the op that a nested block belongs to
        self.uses_of = Uses(self.order)
        self._versions: Counter[User] = Counter()
        self._changes: list[User] = []  # that `_versions` do not count yet
        self.left_out = self._take_in(block, live)

    def _take_in(self, block: Region, live: bool = False) -> set[Op]:
        """Build the tables of `block`; `live`: without ops that have no effects and no users, which are returned."""
        _forget_users(block)
        dead = self.uses_of.enter(block, live)
        for op in dead:
            op.slot = 0
        stack = [block]
        while stack:
            b = stack.pop()
            body = [op for op in b.body if op not in dead] if dead else b.body
            self.order.add_block(b, body)
            for op in body:
                for v in op.results:
                    if len(v.users) > 1:
                        v.users.reverse()  # they were entered last to first
                if op.regions:
                    for r in op.regions:
                        if not r.isolated:
                            self.owner[r] = op
                            stack.append(r)
            for v in b.params:
                v.users = v.users[::-1]
        return dead

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
        """Whether `op` is in the program."""
        return op.slot > 0

    def version(self, op: Op) -> int:
        """How often the operands or attributes of `op` have changed."""
        self._versions.update(self._changes)
        self._changes.clear()
        return self._versions[op]

    def uses(self, v: Value) -> int:
        """How many times `v` is used, as an operand or a result."""
        return self.uses_of.count(v)

    def unused(self, op: Op) -> bool:
        """Whether `op` has no uses."""
        for v in op.results:  # noqa: SIM110  (asked for every op, several times)
            if v.users:
                return False
        return True

    def users_of(self, v: Value) -> list[Op]:
        """The ops that use `v`, each once."""
        return self.uses_of.ops(v)

    def is_result(self, v: Value) -> bool:
        """Whether a block returns `v` or an element of it."""
        return any(isinstance(u, Region) for u in self.uses_of.of(v))

    def used_whole(self, v: Value) -> bool:
        """Whether something uses the tuple `v` itself, not an element of it."""
        return any(operands_of(u)[i] is v for u in self.uses_of.of(v) for i in self.uses_of.places(u, v))

    def only_whole(self, v: Value) -> bool:
        """Whether nothing uses an element of the tuple `v`."""
        return all(operands_of(u)[i] is v for u in self.uses_of.of(v) for i in self.uses_of.places(u, v))

    def block_of(self, op: Op) -> Region:
        """The block in which `op` is."""
        return self.order.block_of(op)

    def place(self, op: Op) -> int:
        """A number that increases along the block of `op`."""
        return self.order.place(op)

    def following(self, op: Op) -> Op | None:
        """The op after `op` in its block; None after the last."""
        return self.order.following(op)

    def dominates(self, v: Value, op: Op) -> bool:
        """Whether `v` is defined wherever `op` is: before it, or before an op that contains it."""
        if v.op is None:
            return True
        if not v.op.slot:
            return False
        home, at = self.block_of(v.op), op
        while (block := self.block_of(at)) is not home:
            if block not in self.owner:
                return False
            at = self.owner[block]
        return self.order.before(v.op, at)

    def body(self, block: Region | None = None) -> list[Op]:
        """The ops of `block` in order, as they stand now."""
        return self.order.body(block or self.block)

    def backward(self, block: Region | None = None) -> Iterator[Op]:
        """The ops of `block`, last to first; the one just yielded may be erased."""
        return self.order.backward(block or self.block)

    def blocks(self) -> Iterator[Region]:
        """The block and those nested in it that are still there, outer before inner."""
        return iter(tuple(self.order.heads))

    def accepts(self, v: Value, by: Operand) -> bool:
        """Whether the users of `v` remain legal if `by` replaces it. Some ops refuse constants that must fail at run time, and
        an element has no elements."""
        if by.__class__ is Element and isinstance(v.type, TupleType) and not self.only_whole(v):
            return False
        return self.users_accept(v, lambda x: by if x is v else x)

    def users_accept(self, v: Value, changed: Callable[[Operand], Operand]) -> bool:
        """Whether every user of `v` remains legal with the changed operands (`user_accepts`)."""
        return all(self.user_accepts(u, changed) for u in v.users if u.__class__ is Op and u.slot)

    def user_accepts(self, user: Op, changed: Callable[[Operand], Operand]) -> bool:
        """Whether `user` is legal if `changed(x)` replaces each operand x. The same is checked for ops that read it through
        `user` and further ops that move elements."""
        todo = [(user, changed)]
        while todo:
            u, changed = todo.pop()
            if u.defn.check is None and MOVEMENT not in u.defn.traits:
                continue
            new = Op(u.defn, tuple(map(changed, u.operands)), u.attrs, u.results, u.regions, u.loc)
            if not is_legal(new):
                return False
            if MOVEMENT in u.defn.traits and new.operands[0] is not u.operands[0] and _is_constant(new.operands[0]):
                new.results = tuple(Value(w.type, "", new) for w in u.results)
                by = partial(_read, dict(zip(u.results, new.results, strict=True)))
                todo += [(user, by) for w in u.results for user in w.users if user.__class__ is Op and user.slot]
        return True

    def verify_op(self, op: Op) -> str | None:
        """The error of `op`, if any: an operand that is not defined before it, a type that differs from its rule's, or an
        error of its own check. The cost does not depend on the size of the program."""
        for v in op.values():
            if not self.dominates(v, op):
                return f"{op.name} %{op.results[0].name if op.results else ''} uses %{v.name} before its definition"
        try:
            inferred = op.defn.result_types(tuple(map(operand_type, op.operands)), op.attrs, op.regions)
            if op.defn.check is not None:
                op.defn.check(op)
        except Violation as violation:
            return f"{op.name}: {violation.message}"
        if len(inferred) != len(op.results):
            return f"{op.name} has {len(op.results)} results for {len(inferred)}"
        for v, t in zip(op.results, inferred, strict=True):
            if not (t is UNTYPED or v.type.accepts(t) or (MEASURES in op.defn.traits and names_extents(v.type, t))):
                return f"{op.name} %{v.name} is {v.type}, its rule gives {t}"
        return None

    def verify(self) -> list[str]:
        """The errors of the whole block, tables included; empty if there are none."""
        faults = [f for b in self.order.heads for op in self.order.body(b) if (f := self.verify_op(op)) is not None]
        counted: defaultdict[Value, int] = defaultdict(int)
        for b in self.order.heads:
            for x in (*(x for op in self.order.body(b) for x in op.operands), *b.results):
                if (v := value_named(x)) is not None:
                    counted[v] += 1
        there = {v for b in self.order.heads for op in self.order.body(b) for v in op.results}
        wrong = [v for v in {*counted, *there} if self.uses(v) != counted.get(v, 0)]
        faults += [f"%{v.name} has {counted.get(v, 0)} uses, the table says {self.uses(v)}" for v in wrong]
        return faults


def _is_constant(x: Operand) -> bool:
    """Whether `x` is a constant, or one whose elements are moved."""
    while x.__class__ is Value and x.op is not None and MOVEMENT in x.op.defn.traits and x.op.operands:
        x = x.op.operands[0]
    return x.__class__ is Literal or (x.__class__ is Value and x.op is not None and x.op.defn.is_constant)


def _read(by: Mapping[Value, Value], x: Operand) -> Operand:
    return by.get(x, x) if isinstance(x, Value) else x


def _forget_users(block: Region) -> None:
    """Forget the tables of an earlier rewriter about the values that `block`, and the nested blocks that capture values,
    define."""
    for v in block.params:
        v.users = NO_USERS
    for op in block.body:
        for v in op.results:
            v.users = NO_USERS
        for r in op.regions:
            if not r.isolated:
                _forget_users(r)
