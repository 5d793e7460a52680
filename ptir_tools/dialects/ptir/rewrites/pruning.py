"""Prune loops and branches: remove unused and duplicate carries, stacked outputs, inputs, arguments and results.

A carry stays when it is read after the loop, or when something that stays is computed from it. Its region then has fewer
parameters and results, and none of the ops that only they needed. Other results and the trip count stay the same. A small
constant that a loop carries only for its regions is made in them instead; a large one, too, if that is asked for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence

from ptir_tools.core.definers import defines
from ptir_tools.core.ir import Element, Literal, Op, Operand, Region, create
from ptir_tools.core.records import dataclass, field
from ptir_tools.dialects.ptir.ops.control import result_count, result_operands, result_types
from ptir_tools.dialects.ptir.rewrites.sharing import Sharing, insert_constant, region_accepts
from ptir_tools.rewrite.constants import literal_of, same_operand
from ptir_tools.rewrite.context import PassContext
from ptir_tools.rewrite.rewriter import Rewriter
from ptir_tools.rewrite.step_log import erased
from ptir_tools.rewrite.uses import value_named

_SMALL_BYTES = 64  # bytes of a constant that is made again in each step


def prune(rw: Rewriter, sharing: Sharing, context: PassContext, *, joins: bool, constants: bool = False) -> int:
    """Prune the loops and branches in the block of `rw`, with the ops that become unused. `joins`: also merge duplicates.
    `constants`: also make large constants in regions. The result is the number of operands and results removed."""
    removed = 0
    for op in reversed(rw.body()):
        if rw.erase_unused(op):
            context.count("erased")
            if context.log is not None:
                context.record(erased(op))
        elif op.defn.name in _PLANS and not used_packed(rw, op):
            removed += _prune(rw, op, sharing, context, joins, constants)
    context.count("pruned", removed)
    return removed


def _prune(rw: Rewriter, op: Op, sharing: Sharing, context: PassContext, joins: bool, constants: bool) -> int:
    read = results_read(rw, op)
    if (found := _carried_constants(op, read, constants)) and context.step("make-inside", op, op):
        _sink_constants(rw, op, found, sharing)
    duplicates = _Duplicates.of(op) if joins else _Duplicates()
    plan = _PLANS[op.defn.name](op, {duplicates.results.get(i, i) for i in read}, duplicates.params)
    removed = len(op.operands) - len(plan.operands) + result_count(op) - len(plan.kept)
    if not removed or context.steps_left == 0:
        return 0
    context.step("prune", op, _apply(rw, op, plan, duplicates, sharing))
    return removed


def carried_parts(op: Op) -> tuple[int, list[tuple[Region, int]]]:
    """The number of carries of a loop, and its regions, each with the number of results before the carried ones."""
    if op.defn.name == "ptir.while":
        return len(op.operands), [(op.regions[0], 1), (op.regions[1], 0)]
    return (op.attr("carry_count") if op.defn.name == "ptir.scan" else 0), [(r, 0) for r in op.regions]


def unchanged(op: Op) -> list[int]:
    """The indices of the carries that every region of a loop returns unchanged."""
    count, parts = carried_parts(op)
    return [k for k in range(count) if all(r.results[skip + k] is r.params[k] for r, skip in parts)]


@dataclass(slots=True)
class _Duplicates:
    """Duplicate operands and results of an op: for the position of each duplicate, the position of the first one."""

    params: dict[int, int] = field(default_factory=dict)
    results: dict[int, int] = field(default_factory=dict)

    @staticmethod
    def of(op: Op) -> _Duplicates:
        count, parts = carried_parts(op)
        given = op.operands[1:] if op.defn.name == "ptir.cond" else op.operands
        params = []
        for k, x in enumerate(given):  # a carry that each region returns as it got it stays what it is
            becomes = [None if (y := r.results[skip + k]) is r.params[k] else y for r, skip in parts if k < count]
            params.append(((k < count, *(r.params[k].type for r in op.regions)), (x, *becomes)))
        firsts = _firsts(params)
        stacked = [(t, tuple(r.results[i] for r in op.regions)) for i, t in enumerate(result_types(op)) if i >= count]
        elements = {i + count: at + count for i, at in _firsts(stacked).items()}
        return _Duplicates(firsts, {i: at for i, at in firsts.items() if i < count} | elements)


def _firsts(items: Iterable[tuple[Hashable, tuple[Operand | None, ...]]]) -> dict[int, int]:
    """For the position of each duplicate, that of the first item of the same kind and equal operands."""
    first: defaultdict[Hashable, list[tuple[int, tuple[Operand | None, ...]]]] = defaultdict(list)
    found = {}
    for k, (kind, operands) in enumerate(items):
        alike = first[kind, *map(_operand_key, operands)]
        at = next((at for at, others in alike if all(map(_same, operands, others))), None)
        if at is None:
            alike.append((k, operands))
        else:
            found[k] = at
    return found


def _same(x: Operand | None, y: Operand | None) -> bool:
    return x is y or (x is not None and y is not None and same_operand(x, y))


def _operand_key(x: Operand | None) -> Hashable:
    """A key that is equal for equal operands: the constant, the declaration of the op, or the parameter."""
    if x is None:
        return None
    if (literal := literal_of(x)) is not None:
        return literal.key
    v = value_named(x)
    return v if v is None or v.op is None else v.op.defn


def _carried_constants(op: Op, read: set[int], large: bool) -> dict[int, Literal]:
    """The small constants, or all, that a loop carries unchanged and that are unused after it, by carry."""
    carries = ((k, literal_of(op.operands[k])) for k in unchanged(op) if k not in read)
    return {
        k: literal
        for k, literal in carries
        if literal is not None
        and (large or _is_small(literal))
        and all(region_accepts(r, r.params[k], literal) for r in op.regions)
    }


def _sink_constants(rw: Rewriter, op: Op, found: dict[int, Literal], sharing: Sharing) -> None:
    """Insert the constants that a loop carries into its regions."""
    copies = []
    for region in op.regions:
        copy, _ = sharing.own(region)
        with Rewriter(copy, rw.dialect) as inner:
            for k, literal in found.items():
                inner.replace_all_uses(copy.params[k], insert_constant(inner, literal))
        copies.append(copy)
    rw.set_regions(op, tuple(copies))


def _is_small(literal: Literal) -> bool:
    return literal.data is not None and len(literal.data) <= _SMALL_BYTES


@dataclass(slots=True)
class Plan:
    """The operands, results (`kept`), and parameters and results of each region that stay, by position."""

    operands: list[int]
    kept: list[int]
    params: list[int]
    results: list[list[int]]
    attrs: dict[str, int]


def used_packed(rw: Rewriter, op: Op) -> bool:
    """Whether the tuple of the several results of `op` is used as a whole."""
    return result_count(op) != 1 and rw.used_whole(op.result)


def results_read(rw: Rewriter, op: Op) -> set[int]:
    """The indices of the used results of `op`; a single result counts as used."""
    if result_count(op) == 1:
        return {0}
    users: list[Iterable[Operand]] = [u.operands for u in rw.users_of(op.result)]
    users.append(rw.block_of(op).results)
    return {x.index for operands in users for x in operands if isinstance(x, Element) and x.value is op.result}


def _needed_params(region: Region, results: Iterable[int], duplicates: Mapping[int, int]) -> set[int]:
    """The indices of the parameters that these results of `region`, and its symbols, depend on; the first of `duplicates`."""
    live = {v for i in results if (v := value_named(region.results[i])) is not None}
    for op in reversed(region.body):
        if not live.isdisjoint(op.results) or defines(op):
            live.update(op.values())
    return {duplicates.get(k, k) for k, p in enumerate(region.params) if p in live}


def _while_plan(op: Op, read: set[int], duplicates: Mapping[int, int]) -> Plan:
    condition, body = op.regions
    kept: set[int] = set()
    more = set(read)
    while more - kept:
        kept |= more
        more = _needed_params(condition, [0, *(k + 1 for k in kept)], duplicates) | _needed_params(body, kept, duplicates)
    carries = sorted(kept)
    return Plan(carries, carries, carries, [[0, *(k + 1 for k in carries)], carries], {})


def _scan_plan(op: Op, read: set[int], duplicates: Mapping[int, int]) -> Plan:
    (body,) = op.regions
    count = op.attr("carry_count")
    outputs = {i for i in read if i >= count}
    kept, more, needed = set[int](), read - outputs, _needed_params(body, outputs, duplicates)
    more |= {k for k in needed if k < count}
    while more - kept:
        kept |= more
        needed = _needed_params(body, kept | outputs, duplicates)
        more = {k for k in needed if k < count}
    inputs = {k for k in needed if k >= count} or {count}  # one tells how many steps there are
    operands, elements = sorted(kept | inputs), sorted(kept | outputs)
    return Plan(operands, elements, operands, [elements], {"carry_count": len(kept), "scan_output_count": len(outputs)})


def _cond_plan(op: Op, read: set[int], duplicates: Mapping[int, int]) -> Plan:
    elements = sorted(read)
    params = sorted(set().union(*(_needed_params(r, elements, duplicates) for r in op.regions)))
    return Plan([0, *(k + 1 for k in params)], elements, params, [elements, elements], {})


_PLANS = {"ptir.while": _while_plan, "ptir.scan": _scan_plan, "ptir.cond": _cond_plan}


def _apply(rw: Rewriter, op: Op, plan: Plan, duplicates: _Duplicates, sharing: Sharing) -> Op:
    """Replace `op` by one with only what the plan keeps; the new op."""
    regions = [
        _pruned_region(rw, r, plan.params, kept, duplicates.params, sharing)
        for r, kept in zip(op.regions, plan.results, strict=True)
    ]
    operands = [op.operands[i] for i in plan.operands]
    groups = [operands[0], operands[1:]] if op.defn.name == "ptir.cond" else [operands]
    attrs = op.defn.named(op.attrs) | plan.attrs
    new = rw.insert_before(op, create(op.defn, groups, attrs, regions=regions, names=[op.result.name], loc=op.loc))
    if (count := result_count(op)) != 1:
        place = {result: at for at, result in enumerate(plan.kept)}
        stays = result_operands(new, len(plan.kept))
        firsts = (duplicates.results.get(i, i) for i in range(count))
        rw.replace_elements(op.result, [stays[place[i]] if i in place else Element(op.result, i) for i in firsts])
    else:
        rw.replace_all_uses(op.result, new)
    rw.erase(op)
    assert new.op is not None
    return new.op


def _pruned_region(
    rw: Rewriter, region: Region, params: Sequence[int], results: Sequence[int], duplicates: Mapping[int, int], sharing: Sharing
) -> Region:
    """A copy of the region with only these parameters and results. Uses of a duplicate parameter are those of the first."""
    copy, _ = sharing.own(region)
    with Rewriter(copy, rw.dialect) as inner:
        for k, first in duplicates.items():
            inner.replace_all_uses(copy.params[k], copy.params[first])
        inner.set_results(copy, [copy.results[i] for i in results])
        inner.erase_dead()
    copy.params = [copy.params[i] for i in params]
    return copy
