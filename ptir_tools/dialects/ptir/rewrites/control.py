"""Patterns of branches that the program already decides, and what they share with those of loops: regions put in line."""

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


def inline(rw: Rewriter, root: Op, block: Region, arguments: Sequence[Operand]) -> list[Operand]:
    """Copies of the ops of `block` before `root`, its parameters replaced by `arguments`; what replaces its results."""
    copies, results = copied(block, arguments)
    for op in copies:
        op.loc = op.loc or root.loc
        rw.insert_before(root, op)
    return results


def copied(block: Region, arguments: Sequence[Operand]) -> tuple[list[Op], list[Operand]]:
    """Copies of the ops of `block`, its parameters replaced by `arguments`, and what replaces its results."""
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
        whole = given.get(x.value, x.value)
        return Element(whole, x.index) if isinstance(whole, Value) else x
    return given.get(x, x) if isinstance(x, Value) else x


def through(block: Region, arguments: Sequence[Operand]) -> list[Operand]:
    """What the results of `block` are before it is put in line: an argument, or what the block has."""
    given = dict(zip(block.params, arguments, strict=True))
    return [_read(x, given) for x in block.results]


def fits(op: OpView, results: Sequence[Operand], used: Iterable[Operand] = ()) -> bool:
    """Whether the users of the root may have `results`, or what equals them, for its first results, while `used` is used: some
    refuse a constant, and no error at run time may vanish."""
    return not op.rw.drops_failure(op.root, [*results, *used]) and _legal(op, dict(enumerate(results)))


def read_by(block: Region, arguments: Sequence[Operand]) -> list[Operand]:
    """The `arguments` of `block` that its ops use."""
    return [x for p, x in zip(block.params, arguments, strict=True) if any(p in op.values() for op in block.body)]


def takes(op: OpView, by: dict[int, Operand]) -> bool:
    """Likewise, `by[k]` for its result k."""
    return not _loses_error(op, by) and _legal(op, by)


def _loses_error(op: OpView, by: dict[int, Operand]) -> bool:
    """Whether nothing would read the root any more, and its own error (a loop that does not end) would vanish, or that of an op
    which only it uses."""
    if not _all_read(op) <= by.keys():
        return False
    fails = op.root.defn.fails
    return (fails is not None and fails(op.root)) or op.rw.drops_failure(op.root, by.values())


def _all_read(op: OpView) -> set[int]:
    """The numbers of the root's results that something uses; -1 where the tuple of them is used."""
    if result_count(op.root) == 1:
        return {0}
    users: list[Op | Region] = [*op.rw.uses_of.of(op.result)]
    read = [x for u in users for x in operands_of(u) if x is op.result or (isinstance(x, Element) and x.value is op.result)]
    return {x.index if isinstance(x, Element) else -1 if isinstance(op.result.type, TupleType) else 0 for x in read}


def _legal(op: OpView, by: dict[int, Operand]) -> bool:
    if result_count(op.root) == 1:
        return 0 not in by or Inspector.accepts(op.rw, op.result, by[0])
    return op.rw.users_accept(op.result, lambda x: _element(op, x, by))


def _element(op: OpView, x: Operand, by: dict[int, Operand]) -> Operand:
    """`x`, or what replaces it when it is one of the root's several results."""
    return by.get(x.index, x) if isinstance(x, Element) and x.value is op.result else x


def inlinable(block: Region, arguments: Sequence[Operand], loops: bool = True) -> bool:
    """Whether the ops can be outside their region. No tuple argument is an element of another tuple, and no constant argument
    makes an op fail for sure. Nothing draws random numbers: in a region that `loops` they depend on the step."""
    if any(draws(op) and (loops or op.regions or op.attr("stream") is None) for op in block.body):
        return False
    if not all(isinstance(x, Value) or isinstance(operand_type(x), TensorType) for x in arguments):
        return False
    return all(op.defn.check is None for op in block.body) or all(map(is_legal, copied(block, arguments)[0]))


def replaced(op: OpView, results: Sequence[Operand]) -> bool:
    """Let what uses the results of the root use `results`."""
    if len(results) == 1:
        return op.replace(results[0])
    if not op.rw.replace_elements(op.result, results):
        return False
    op.rw.erase(op.root)
    return True


def results_replaced(op: OpView, by: dict[int, Operand]) -> bool:
    """Let what uses result k of the root use `by[k]`, where it may; False when nothing does."""
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


def whole(op: OpView) -> bool:
    """Whether the several results of the root are used as one tuple."""
    return used_packed(op.rw, op.root)


def _taken(op: OpView, block: Region) -> bool:
    arguments = op.root.operands[1:]
    if whole(op) or not inlinable(block, arguments, loops=False):
        return False
    if not fits(op, through(block, arguments), read_by(block, arguments)):
        return False
    return replaced(op, inline(op.rw, op.root, block, arguments))


@rewrites("ptir.cond")
def cond_of_constant(op: OpView) -> bool:
    """A branch on a known predicate is the branch taken."""
    known = scalar_of(op.pred)
    return known is not None and _taken(op, op.root.regions[0 if known else 1])


@rewrites("ptir.cond", depth=1)
def cond_of_same(op: OpView) -> bool:
    """A branch to equal regions either way is that region."""
    block, other = op.root.regions
    return (block is other or _equal(op.rw, block, other)) and _taken(op, block)


def _equal(rw: Rewriter, a: Region, b: Region) -> bool:
    """Whether two regions of one signature certainly compute the same."""
    if len(a.body) != len(b.body) or any(draws(op) or _misses_payload(op) for op in a.body):
        return False
    return fingerprint(Rewriter(a, rw.dialect)) == fingerprint(Rewriter(b, rw.dialect))


def _misses_payload(op: Op) -> bool:
    return any(isinstance(x, Literal) and x.data is None for x in (*op.operands, *op.attrs))


@rewrites("ptir.cond", operands=["ptir.compare_eq"])
def cond_of_not(op: OpView) -> bool:
    """A branch on a negation is the branch the other way round."""
    test = op.defined_by(op.pred, "compare_eq")
    if test is None or scalar_of(test.y) is not False:
        return False
    block, other = op.root.regions
    groups = op.root.defn.split(op.root.attrs, op.root.operands)
    flipped = create(op.root.defn, [test.x, *groups[1:]], regions=[other, block], types=[op.result.type])
    return op.replace(op.rw.insert_before(op.root, flipped))


@rewrites("ptir.cond", depth=1)
def cond_unchanged(op: OpView) -> bool:
    """What either branch returns as it got it is what it was."""
    block, other = op.root.regions
    same = {k: block.params.index(x) for k, x in enumerate(block.results) if isinstance(x, Value) and x in block.params}
    same = {k: at for k, at in same.items() if other.results[k] is other.params[at]}
    return results_replaced(op, {k: op.root.operands[1 + at] for k, at in same.items()})


@rewrites("ptir.cond", depth=1)
def cond_of_scalars(op: OpView) -> bool:
    """A branch to one of two scalars that are there already selects."""
    if not isinstance(op.result.type, TensorType) or op.result.type.rank:
        return False
    arms = [_there(block, op.root.operands[1:]) for block in op.root.regions]
    if any(arm is None or (isinstance(arm, Literal) and arm.data is None) for arm in arms):
        return False
    return op.replace(op.rw.build(op.root, "select", op.pred, *arms))


def _there(block: Region, arguments: Sequence[Operand]) -> Operand | None:
    """The one result of `block` outside of it, when it is a parameter or a constant, and nothing draws random numbers."""
    (x,) = block.results
    if any(map(draws, block.body)):
        return None
    return arguments[block.params.index(x)] if isinstance(x, Value) and x in block.params else literal_of(x)


CONTROL: list[Pattern] = [cond_of_constant, cond_of_same, cond_of_not, cond_unchanged, cond_of_scalars]
