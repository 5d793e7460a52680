"""Computations on the devices of a mesh, as one program: the body is read once per device, and collective ops combine the
values of all devices."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import product

from ptir_tools.bridges.stablehlo.checks import Checks
from ptir_tools.bridges.stablehlo.ops.control import Regions, chosen, loop
from ptir_tools.bridges.stablehlo.ops.movement import cut
from ptir_tools.bridges.stablehlo.ops.reductions import combined, computation
from ptir_tools.bridges.stablehlo.scopes import CALLS, POISON, RETURNS, InError, Reader, Scope
from ptir_tools.bridges.stablehlo.syntax import Block, Statement
from ptir_tools.bridges.stablehlo.table import Site, Tensor, handles, refused, sizes_of
from ptir_tools.core.dtypes import UI32
from ptir_tools.core.lazy import np
from ptir_tools.core.violations import Violation, require
from ptir_tools.grammars.parser import Token

Cut = list[list[str]]  # of each axis of a tensor: the axes of the mesh among whose devices it is divided, the major one first
Group = list[Tensor]  # the values of the devices that communicate, in their order
_PLACING = re.compile(r"<@([\w.$-]+)\s*,\s*\[([^\]]*)\][^<>]*>")


def _cuts(site: Site, name: str) -> list[tuple[str, Cut]]:
    """The mesh and the cut of each value in a list of shardings. Raises Violation."""
    text = str(site.value(name, ""))
    if ":(" in text:
        raise refused(f"`{name}` that divides an axis of the mesh")
    found = _PLACING.findall(text)
    return [(mesh, [re.findall(r'"([^"]*)"', axes) for axes in re.findall(r"\{([^}]*)\}", cuts)]) for mesh, cuts in found]


def _part(place: Mapping[str, int], mesh: Mapping[str, int], axes: Sequence[str]) -> tuple[int, int]:
    """Which part of a divided axis the device at `place` has, and of how many."""
    index, count = 0, 1
    for axis in axes:
        require(axis in mesh, "InvalidAttributeValue", f"the mesh has no axis `{axis}`")
        index, count = index * mesh[axis] + place[axis], count * mesh[axis]
    return index, count


@handles("sdy.manual_computation", values=True)
def manual_computation(site: Site, *operands: object) -> list[object]:
    """A computation that says what each device does with its parts of the operands."""
    given, wanted = _cuts(site, "in_shardings"), _cuts(site, "out_shardings")
    meshes = {mesh for mesh, _ in (*given, *wanted)}
    require(
        len(meshes) == 1 and len(site.regions) == 1, "InvalidAttributeValue", "a region and shardings of one mesh are expected"
    )
    require(len(given) == len(operands), "OperandCountMismatch", f"{len(operands)} operands have {len(given)} shardings")
    mesh = site.scope.reader.meshes.get(name := meshes.pop())
    if mesh is None:
        raise Violation("UndefinedValue", f"there is no mesh @{name}")
    manual = site.value("manual_axes", {})
    if free := [axis for axis, n in mesh.items() if n > 1 and axis not in manual]:
        raise refused(f"a computation that leaves the axis `{free[0]}` of the mesh to the compiler")
    places = [dict(zip(mesh, at, strict=True)) for at in product(*map(range, mesh.values()))]
    region = site.regions[0]
    scopes = []
    for k, place in enumerate(places):
        scope = Scope(site.scope.reader, site.block, site.scope)
        scope.device = k
        parts = [_shard(site, x, mesh, place, axes) for x, (_, axes) in zip(site.each(operands), given, strict=True)]
        scope.parameters(region.params or site.arguments, parts)
        scopes.append(scope)
    rows = _run(scopes, region)
    require(all(len(row) == len(wanted) for row in rows), "OperandCountMismatch", "a sharding per result is expected")
    columns = zip(*([*site.each(row)] for row in rows), strict=True)
    return [_whole(site, [*x], mesh, places, axes) for x, (_, axes) in zip(columns, wanted, strict=True)]


def _shard(site: Site, x: Tensor, mesh: Mapping[str, int], place: Mapping[str, int], axes: Cut) -> Tensor:
    """The part of `x` on a device."""
    for a, names in enumerate(axes):
        index, count = _part(place, mesh, names)
        if count > 1:
            each, rest = divmod(sizes_of(x)[a], count)
            require(not rest, "OperandShapeMismatch", f"axis {a} of {x.type} is not {count} equal parts")
            x = cut(site, x, a, index * each, each)
    return x


def _whole(site: Site, parts: Group, mesh: Mapping[str, int], places: Sequence[Mapping[str, int]], axes: Cut) -> Tensor:
    """The tensor that the devices have in parts; copies are left out."""
    by_part = {
        tuple(_part(place, mesh, names)[0] for names in axes): x for place, x in reversed([*zip(places, parts, strict=True)])
    }
    for a in reversed(range(len(axes))):
        rows: dict[tuple[int, ...], Group] = {}
        for at in sorted(by_part):
            rows.setdefault(at[:a], []).append(by_part[at])
        by_part = {at: xs[0] if len(xs) == 1 else site.concat(xs, axis=a) for at, xs in rows.items()}
    return by_part[()]


def _run(scopes: Sequence[Scope], region: Block) -> list[list[object]]:
    """The results of a region on each device. Raises InError, Violation."""
    reader = scopes[0].reader
    for s in region.body:
        if s.name in RETURNS:
            return [reader.returned(s, scope) for scope in scopes]
        if not _exchanges(s, reader, set()):
            for scope in scopes:
                reader.statement(s, scope)
            continue
        count = sum(n for _, n in s.results)
        try:
            rows: Sequence[Sequence[object]] = _exchanged(s, scopes)
        except (InError, Violation) as error:
            if isinstance(error, Violation):
                reader.error(error, s)
            rows = [[POISON] * count] * len(scopes)
        for scope, row in zip(scopes, rows, strict=True):
            at = 0
            for name, n in s.results:
                scope.define(s.at, name, row[at : at + n])
                at += n
    raise Violation("SyntaxError", "a block ends with a return")


def _exchanges(s: Statement, reader: Reader, seen: set[str]) -> bool:
    """Whether an op, a region of it or a function that it calls combines values of devices. Functions `seen` do not."""
    if s.name in COLLECTIVES:
        return True
    blocks = [*s.regions()]
    name = _callee(s) if s.name in CALLS else ""
    if name and name not in seen and (entry := reader.functions.get(name)) is not None and entry.body is not None:
        blocks = [entry.body]
        seen.add(name)
    return any(_exchanges(inner, reader, seen) for block in blocks for inner in block.body)


def _callee(s: Statement) -> str:
    """The name of the function that is called; "" if there is none."""
    return next((str(x)[1:].strip('"') for x in s.pieces if isinstance(x, Token) and x.type == "SYMBOL"), "")


def _exchanged(s: Statement, scopes: Sequence[Scope]) -> Sequence[Sequence[object]]:
    """The results of an op that combines values of devices, on each. Raises InError, Violation."""
    sites = [Site(scope, s, {}) for scope in scopes]
    rows = [[*site.each([site.scope.lookup(name) for name in site.names])] for site in sites]
    if s.name in TOGETHER:
        return TOGETHER[s.name](sites, rows)
    if s.name not in COLLECTIVES:
        raise refused(f"`{s.name}` with a region in which devices exchange values")
    made = [COLLECTIVES[s.name](sites[0], [row[i] for row in rows]) for i in range(len(rows[0]))]
    return [list(row) for row in zip(*made, strict=True)]


def _called(sites: Sequence[Site], rows: Sequence[Group]) -> list[list[object]]:
    """The results of a function, whose ops are inlined here."""
    reader, name = sites[0].scope.reader, _callee(sites[0].statement)
    entry = reader.functions[name]
    assert entry.body is not None
    if name in reader.calls:
        raise refused(f"@{name} calls itself")
    scopes = [Scope(reader, site.block) for site in sites]
    for scope, site, row in zip(scopes, sites, rows, strict=True):
        scope.device = site.scope.on_device
        scope.parameters(entry.params or entry.body.params, row)
    reader.calls.append(name)
    try:
        return [[*sites[0].each(row)] for row in _run(scopes, entry.body)]
    finally:
        reader.calls.pop()


def _agreed(flags: Group, checks: Checks) -> Tensor:
    """A truth value that all devices have; the run fails if they have not."""
    for flag in flags[1:]:
        if flag.operand is not flags[0].operand:
            checks.add(flag.compare_eq(flags[0]))
    return flags[0]


def _loop(sites: Sequence[Site], rows: Sequence[Group]) -> list[list[object]]:
    """A while loop, with the values of all devices."""
    return loop(sites, rows, _run, lambda flags: _agreed(flags, sites[0].scope.reader.checks))


def _branch(sites: Sequence[Site], rows: Sequence[Group]) -> list[list[object]]:
    """One of several branches, with the values of all devices."""
    require(len(sites[0].regions) > 1, "OperandCountMismatch", "two regions are expected")
    selector = _agreed([row[0] for row in rows], sites[0].scope.reader.checks)
    made = chosen(Regions(sites, [[] for _ in sites], _run), selector)
    each = len(made) // len(sites)
    return [[*made[k * each : (k + 1) * each]] for k in range(len(sites))]


TOGETHER: dict[str, Callable[[Sequence[Site], Sequence[Group]], list[list[object]]]] = {
    "stablehlo.while": _loop, "stablehlo.if": _branch, "stablehlo.case": _branch, **dict.fromkeys(CALLS, _called),
}  # fmt: skip


def _grouped(site: Site, xs: Group, combine: Callable[[Group], Group]) -> Group:
    """The results of each group of devices; without groups, all devices are one."""
    table = np.asarray(site.value("replica_groups", [])).reshape(-1)
    rows = np.asarray(site.value("replica_groups", [])).reshape(len(site.value("replica_groups", [])) or 1, -1)
    groups = [[int(d) for d in row if d >= 0] for row in rows] if table.size else [list(range(len(xs)))]
    fine = sorted(d for group in groups for d in group) == list(range(len(xs)))
    require(fine, "InvalidAttributeValue", f"`replica_groups` {groups} are not all of {len(xs)} devices")
    results: dict[int, Tensor] = {}
    for group in groups:
        results.update(zip(group, combine([xs[d] for d in group]), strict=True))
    return [results[d] for d in range(len(xs))]


def _reduced(site: Site, xs: Group) -> Tensor:
    region, total = computation(site, 1), xs[0]
    for x in xs[1:]:
        (total,) = combined(site, region, [total], [x])
    return total


def _halves(site: Site, x: Tensor, axis: int, count: int) -> Group:
    """Equal parts along an axis."""
    each, rest = divmod(sizes_of(x)[axis], count)
    require(not rest, "OperandShapeMismatch", f"axis {axis} of {x.type} is not {count} equal parts")
    return [cut(site, x, axis, k * each, each) for k in range(count)]


def all_reduce(site: Site, xs: Group) -> Group:
    """The combination of the values of a group."""
    return _grouped(site, xs, lambda group: [_reduced(site, group)] * len(group))


def all_gather(site: Site, xs: Group) -> Group:
    """The values of a group, joined along an axis."""
    axis = site.axis("all_gather_dim", xs[0].rank)
    return _grouped(site, xs, lambda group: [site.concat(group, axis=axis)] * len(group))


def reduce_scatter(site: Site, xs: Group) -> Group:
    """The combination of the values of a group, a part for each device."""
    axis = site.axis("scatter_dimension", xs[0].rank)
    return _grouped(site, xs, lambda group: _halves(site, _reduced(site, group), axis, len(group)))


def all_to_all(site: Site, xs: Group) -> Group:
    """Each device of a group gets its part of every value, and joins them."""
    split, joined = (site.axis(name, xs[0].rank) for name in ("split_dimension", "concat_dimension"))

    def exchange(group: Group) -> Group:
        parts = [_halves(site, x, split, len(group)) for x in group]
        return [site.concat([row[k] for row in parts], axis=joined) for k in range(len(group))]

    return _grouped(site, xs, exchange)


def collective_permute(site: Site, xs: Group) -> Group:
    """The value of another device; zeros where none is sent."""
    pairs = site.ints("source_target_pairs")
    sources = dict(zip(pairs[1::2], pairs[0::2], strict=True))
    fine = all(0 <= d < len(xs) for d in pairs) and len(sources) == len(set(sources.values())) == len(pairs) // 2
    require(fine, "InvalidAttributeValue", f"`source_target_pairs` {list(pairs)} are not pairs of {len(xs)} devices")
    return [xs[sources[d]] if d in sources else site.full(0, x.tensor_type) for d, x in enumerate(xs)]


COLLECTIVES: dict[str, Callable[[Site, Group], Group]] = {
    f"stablehlo.{f.__name__}": f for f in (all_reduce, all_gather, reduce_scatter, all_to_all, collective_permute)
}


@handles("stablehlo.partition_id")
def partition_id(site: Site) -> Tensor:
    """The number of the device."""
    if (device := site.scope.on_device) is None:
        raise refused("PTIR programs run on one device")
    return site.constant(device, UI32)
