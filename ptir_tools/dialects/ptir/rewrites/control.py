"""Patterns of branches with a known predicate, and the inlining of regions that loop patterns share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ptir_tools.core.ir import Element, Literal, Op, Operand, Region, Value, create, is_legal, operand_type
from ptir_tools.core.types import TensorType, TupleType
from ptir_tools.dialects.ptir.ops.control import result_count
from ptir_tools.dialects.ptir.rewrites.pruning import used_packed
from ptir_tools.dialects.ptir.rewrites.speculation import draws
from ptir_tools.rewrite.constants import literal_of, scalar_of
from ptir_tools.rewrite.inspector import Inspector
from ptir_tools.rewrite.patterns import OpView, Pattern, rewrites
from ptir_tools.rewrite.rewriter import Rewriter
from ptir_tools.rewrite.step_log import fingerprint
from ptir_tools.rewrite.uses import operands_of

_COPIED = 256  # the most ops of a region that are copied where others run it, too


def inline(rw: Rewriter, root: Op, block: Region, arguments: Sequence[Operand]) -> list[Operand]:
    """Insert copies of the ops of `block` before `root`, with `arguments` for its parameters; the operands that replace its
    results."""
    copies, results = copy_ops(block, arguments)
    for op in copies:
        op.loc = op.loc or root.loc
        rw.insert_before(root, op)
        for region in op.regions:
            rw.runs_again(region)
    return results


def copy_ops(block: Region, arguments: Sequence[Operand]) -> tuple[list[Op], list[Operand]]:
    """Copies of the ops of `block`, with `arguments` for its parameters, and the operands that replace its results."""
    given: dict[Value, Operand] = dict(zip(block.params, arguments, strict=True))
    copies = []
    for op in block.body:
        copy = Op(op.defn, tuple(_read(x, given) for x in op.operands), op.attrs, (), op.regions, op.loc)
        copy.results = tuple(Value(v.type, "", copy) for v in op.results)
        given.update(zip(op.results, copy.results, strict=True))
        copies.append(copy)
    return copies, [_read(x, given) for x in block.results]


def _read(x: Operand, given: dict[Value, Operand]) -> Operand:
    if isinstance(x, Element):
        packed = given.get(x.value, x.value)
        return Element(packed, x.index) if isinstance(packed, Value) else x
    return given.get(x, x) if isinstance(x, Value) else x


def results_of(block: Region, arguments: Sequence[Operand]) -> list[Operand]:
    """The results of `block` before it is inlined: an argument, or the block's own value."""
    given = dict(zip(block.params, arguments, strict=True))
    return [_read(x, given) for x in block.results]


def users_accept(op: OpView, results: Sequence[Operand], used: Iterable[Operand] = ()) -> bool:
    """Whether `results` may replace the first results of the root for its users. Some users refuse a constant. An op that may
    fail must stay used, so that no run-time error vanishes."""
    return not op.rw.drops_failure(op.root, [*results, *used]) and _is_legal(op, dict(enumerate(results)))


def read_by(block: Region, arguments: Sequence[Operand]) -> list[Operand]:
    """The `arguments` of `block` that its ops use."""
    return [x for p, x in zip(block.params, arguments, strict=True) if any(p in op.values() for op in block.body)]


def users_accept_each(op: OpView, by: dict[int, Operand]) -> bool:
    """As `users_accept`, with `by[k]` for result k."""
    return not _loses_error(op, by) and _is_legal(op, by)


def _loses_error(op: OpView, by: dict[int, Operand]) -> bool:
    """Whether the root would become unused and a run-time error would vanish with it. This may be its own error, as in a loop
    that does not end, or that of an op that only the root uses."""
    if not _used_results(op) <= by.keys():
        return False
    fails = op.root.defn.fails
    return (fails is not None and fails(op.root)) or op.rw.drops_failure(op.root, by.values())


def _used_results(op: OpView) -> set[int]:
    """The indices of the root's results that are used; -1 where the whole tuple is used."""
    if result_count(op.root) == 1:
        return {0}
    users: list[Op | Region] = [*op.rw.uses_of.of(op.result)]
    read = [x for u in users for x in operands_of(u) if x is op.result or (isinstance(x, Element) and x.value is op.result)]
    return {x.index if isinstance(x, Element) else -1 if isinstance(op.result.type, TupleType) else 0 for x in read}


def _is_legal(op: OpView, by: dict[int, Operand]) -> bool:
    if result_count(op.root) == 1:
        return 0 not in by or Inspector.accepts(op.rw, op.result, by[0])
    return op.rw.users_accept(op.result, lambda x: _element(op, x, by))


def _element(op: OpView, x: Operand, by: dict[int, Operand]) -> Operand:
    """`x`, or its replacement when it is one of the root's several results."""
    return by.get(x.index, x) if isinstance(x, Element) and x.value is op.result else x


def is_spread(rw: Rewriter, root: Op, block: Region) -> bool:
    """Whether `block` is large and ops other than `root` run it, too. It is not copied: copies of copies would double the program
    with every level of regions."""
    return len(block.body) > _COPIED and rw.runs(block) > sum(r is block for r in root.regions)


def inlinable(block: Region, arguments: Sequence[Operand], loops: bool = True) -> bool:
    """Whether the ops may be outside their region. No tuple argument is an element of another tuple, and no constant argument
    makes an op fail. Nothing draws random numbers: in a region of `loops` they depend on the iteration."""
    if any(draws(op) and (loops or op.regions or op.attr("stream") is None) for op in block.body):
        return False
    if not all(isinstance(x, Value) or isinstance(operand_type(x), TensorType) for x in arguments):
        return False
    return all(op.defn.check is None for op in block.body) or all(map(is_legal, copy_ops(block, arguments)[0]))


def replaced(op: OpView, results: Sequence[Operand]) -> bool:
    """Replace the results of the root by `results`."""
    if len(results) == 1:
        return op.replace(results[0])
    if not op.rw.replace_elements(op.result, results):
        return False
    op.rw.erase(op.root)
    return True


def results_replaced(op: OpView, by: dict[int, Operand]) -> bool:
    """Replace result k of the root by `by[k]` where that is legal; False when no use changes."""
    if not by or _loses_error(op, by):
        return False
    if result_count(op.root) == 1:
        return op.replace(by[0])
    rw, home = op.rw, op.rw.block_of(op.root)
    changed = False
    for user in rw.users_of(op.result):
        operands = tuple(_element(op, x, by) for x in user.operands)
        if operands != user.operands and rw.user_accepts(user, lambda x: _element(op, x, by)):
            rw.set_operands(user, operands)
            changed = True
    results = [_element(op, x, by) for x in home.results]
    if results != home.results:
        rw.set_results(home, results)
        changed = True
    return changed


def used_as_tuple(op: OpView) -> bool:
    """Whether the root's several results are used as one tuple."""
    return used_packed(op.rw, op.root)


def _inlined(op: OpView, block: Region) -> bool:
    arguments = op.root.operands[1:]
    if used_as_tuple(op) or is_spread(op.rw, op.root, block) or not inlinable(block, arguments, loops=False):
        return False
    if not users_accept(op, results_of(block, arguments), read_by(block, arguments)):
        return False
    return replaced(op, inline(op.rw, op.root, block, arguments))


@rewrites("ptir.cond")
def cond_of_constant(op: OpView) -> bool:
    """A branch on a known predicate is its region."""
    known = scalar_of(op.pred)
    return known is not None and _inlined(op, op.root.regions[0 if known else 1])


@rewrites("ptir.cond", depth=1)
def cond_of_same(op: OpView) -> bool:
    """A branch with two equal regions is that region."""
    block, other = op.root.regions
    return (block is other or _equal(op.rw, block, other)) and _inlined(op, block)


def _equal(rw: Rewriter, a: Region, b: Region) -> bool:
    """Whether two regions of one signature certainly compute the same."""
    if len(a.body) != len(b.body) or any(draws(op) or _misses_payload(op) for op in a.body):
        return False
    return fingerprint(Rewriter(a, rw.dialect)) == fingerprint(Rewriter(b, rw.dialect))


def _misses_payload(op: Op) -> bool:
    return any(isinstance(x, Literal) and x.data is None for x in (*op.operands, *op.attrs))


@rewrites("ptir.cond", operands=["ptir.compare_eq"])
def cond_of_not(op: OpView) -> bool:
    """A branch on a negation has its regions swapped."""
    test = op.defined_by(op.pred, "compare_eq")
    if test is None or scalar_of(test.y) is not False:
        return False
    block, other = op.root.regions
    groups = op.root.defn.split(op.root.attrs, op.root.operands)
    flipped = create(op.root.defn, [test.x, *groups[1:]], regions=[other, block], types=[op.result.type])
    return op.replace(op.rw.insert_before(op.root, flipped))


@rewrites("ptir.cond", depth=1)
def cond_unchanged(op: OpView) -> bool:
    """A result that both regions pass through unchanged is the operand."""
    block, other = op.root.regions
    same = {k: block.params.index(x) for k, x in enumerate(block.results) if isinstance(x, Value) and x in block.params}
    same = {k: at for k, at in same.items() if other.results[k] is other.params[at]}
    return results_replaced(op, {k: op.root.operands[1 + at] for k, at in same.items()})


@rewrites("ptir.cond", depth=1)
def cond_of_scalars(op: OpView) -> bool:
    """A branch between two scalars that exist before it is a `select`."""
    if not isinstance(op.result.type, TensorType) or op.result.type.rank:
        return False
    arms = [_available_result(block, op.root.operands[1:]) for block in op.root.regions]
    if any(arm is None or (isinstance(arm, Literal) and arm.data is None) for arm in arms):
        return False
    return op.replace(op.rw.build(op.root, "select", op.pred, *arms))


def _available_result(block: Region, arguments: Sequence[Operand]) -> Operand | None:
    """The one result of `block` outside of it, when it is a parameter or a constant and nothing draws random numbers."""
    (x,) = block.results
    if any(map(draws, block.body)):
        return None
    return arguments[block.params.index(x)] if isinstance(x, Value) and x in block.params else literal_of(x)


CONTROL: list[Pattern] = [cond_of_constant, cond_of_same, cond_of_not, cond_unchanged, cond_of_scalars]
