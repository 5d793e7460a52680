"""Loops and branches: they carry, and give, the bytes that their blocks write and that are read later."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.core.declare import OPS
from ptir_tools.core.ir import Argument, Region, Value, create, operand_type
from ptir_tools.core.violations import OP_NAME, Violation, require
from ptir_tools.dialects.pto.ptoas.flow import defined, op_name, values
from ptir_tools.dialects.pto.ptoas.reader import Buffer, Known, Reader, Storage, View, kind_of, number
from ptir_tools.dialects.pto.types import INDEX_TYPE, TileType
from ptir_tools.grammars.parser import Node


def result(r: Reader, node: Node) -> None:
    """The value that a function returns. Raises Violation."""
    operands = [r.read(t) for t in values(node)]
    r.region.results, r.region.return_loc = list(operands), node.loc


def section(r: Reader, node: Node) -> None:
    """`pto.section.cube { … }`: its ops."""
    inside(r, node.parts("block")[0], r.region)


def inside(r: Reader, block: Node, region: Region) -> None:
    """The ops of a block into a region. Names that it defines are not seen after."""
    outer, before = r.region, set(r.known)
    r.region = region
    r.statements([n for n in block.children if not ends_block(n)])
    last = block.children[-1] if block.children and ends_block(block.children[-1]) else None
    if last is not None and op_name(last) in ("return", "func.return"):
        result(r, last)
    r.region = outer
    r.yielded = [r.look(t) for t in values(last)] if last is not None and outer is not region else []
    r.known = {k: v for k, v in r.known.items() if k in before}


def carried_by(r: Reader, node: Node, live: frozenset[str]) -> list[Storage]:
    """The bytes that blocks write and that are read later, in the order of their names."""
    found: list[Storage] = []
    for name in sorted(r.flow.written(node) & live):
        buffer = r.known.get(name[1:])
        storage = r.fixed.get(name) or (buffer.storage if isinstance(buffer, Buffer) else None)
        if storage is not None and storage not in found:
            found.append(storage)
    return found


def hold(r: Reader, held: dict[Storage, Value | None]) -> None:
    """Let all bytes hold what they did; bytes that are newer hold nothing."""
    for s in r.every:
        s.held = held.get(s)


def branch(r: Reader, node: Node) -> None:
    """`scf.if`: it gives the buffers that it writes, next to its own results. A result that is a view must be the same in both
    blocks. Raises Violation."""
    r.loc = node.loc
    condition, names = r.scalar(node.token("SSA")), defined(node)
    carried = carried_by(r, node, r.flow.after[id(node)])
    start = {s: s.held for s in r.every}
    blocks = node.parts("block")
    regions, ends = [Region(name, isolated=False, loc=node.loc) for name in ("then", "otherwise")], list[list[Known]]()
    for k, region in enumerate(regions):
        hold(r, start)
        r.yielded = []
        if k < len(blocks):
            inside(r, blocks[k], region)
        require(len(r.yielded) == len(names), "TypeMismatch", f"{len(names)} results, a block gives {len(r.yielded)}")
        ends.append(r.yielded)
        region.results = list(given(r, region, [x for x in r.yielded if not isinstance(x, View)], carried))
    results = finished(r, node, "pto.scf.if", [condition], regions, start)
    for name, first, second in zip(names, *ends, strict=True):
        if not isinstance(first, View):
            give(r, name, first, results.pop(0))
            continue
        same = isinstance(second, View) and same_view(first, second)
        require(same, "UnknownOp", f"`{name}` is one of two views, which cannot be read", at=name)
        r.bind(name, first)
    settle(r, carried, results)


def given(r: Reader, region: Region, yielded: Sequence[Known], carried: list[Storage], count: int | None = None) -> list[Value]:
    """What a block gives: the values that it has ended with (`count` of them), and what bytes hold then. Raises Violation."""
    right = count is None or len(yielded) == count
    require(right, "TypeMismatch", f"the block gives {len(yielded)} values, {count} are expected")
    outer, r.region = r.region, region
    found = [*(plain(r, x) for x in yielded), *(r.seen(s, s.type) for s in carried)]
    r.region = outer
    return found


def finished(
    r: Reader, node: Node, name: str, arguments: Sequence[Argument], regions: list[Region], start: dict[Storage, Value | None]
) -> list[Value]:
    """The results of the op of a loop or branch, after which bytes hold what they did at its start. Raises Violation."""
    for region in regions:
        region.result_types = [operand_type(x) for x in region.results]
    hold(r, start)
    made = create(OPS[name], arguments, {}, regions=regions, loc=node.loc)
    r.region.body.append(made)
    return list(made.results)


def give(r: Reader, name: str, x: Known, value: Value) -> None:
    """Bind a name to the result of a loop or branch, which is as `x` is."""
    value.name = r.value_name(name[1:])
    if isinstance(x, Buffer):
        assert isinstance(value.type, TileType)
        r.bind(name, Buffer(x.type, r.storage(value.name, value.type, held=value), x.valid))
    else:
        r.bind(name, value)


def settle(r: Reader, carried: list[Storage], results: list[Value]) -> None:
    """Let bytes hold what a loop or branch gives for them. What others hold is known if no block has written them."""
    for s, value in zip(carried, results, strict=True):
        value.name = r.value_name(s.name)
        s.held = value


def loop(r: Reader, node: Node) -> None:
    """`scf.for`. Raises Violation."""
    bounds = [r.named(r.index(t)) for t in node.tokens() if t.type == "SSA"]
    names, inits = bindings(r, [x for part in node.parts("carried") for x in part.parts("binding")])
    counter = str(node.token("BINDING")).rstrip(" \t\r\n=")
    carry(r, node, "pto.scf.for", bounds, [(counter, names)], inits)


def repeat(r: Reader, node: Node) -> None:
    """`scf.while`. Raises Violation."""
    names, inits = bindings(r, node.parts("binding"))
    label = node.part("label")
    params = [str(x.token("SSA")) for part in (label.parts("parameters") if label else ()) for x in part.parts("parameter")]
    carry(r, node, "pto.scf.while", [], [("", names), ("", params)], inits)


def carry(r: Reader, node: Node, name: str, bounds: list[Value], blocks: list[tuple[str, list[str]]], inits: list[Known]) -> None:
    """The op of a loop. Each of its blocks has a counter, or none, and the names of its other parameters. The first of two blocks
    gives a condition, too. Raises Violation."""
    carried = carried_by(r, node, r.flow.after[id(node)] | r.flow.before[id(node)])
    first = [*(plain(r, x) for x in inits), *(r.seen(s, s.type) for s in carried)]
    start, before, count, passed = {s: s.held for s in r.every}, r.known, len(inits), inits
    regions = []
    for k, (counter, names) in enumerate(blocks):
        region = Region("before" if k == 0 and len(blocks) > 1 else "body", isolated=False, loc=node.loc)
        r.known = dict(before)
        if counter:
            region.params = [Value(INDEX_TYPE, r.value_name(counter[1:]))]
            r.bind(counter, region.params[0])
        enter(r, region, names, passed, carried)
        inside(r, node.parts("block")[k], region)
        tests = k == 0 and len(blocks) > 1
        made = given(r, region, r.yielded, carried, 1 + len(defined(node)) if tests else count)
        region.results = list(made)
        passed = list(made[1 : 1 + len(defined(node))]) if tests else passed
        regions.append(region)
    r.known = before
    results = finished(r, node, name, [*bounds, first], regions, start)
    for result, x in zip(defined(node), passed, strict=True):
        give(r, result, x, results.pop(0))
    settle(r, carried, results)


def bindings(r: Reader, nodes: list[Node]) -> tuple[list[str], list[Known]]:
    """The names that a loop carries, and what they begin with. Raises Violation."""
    names = [str(x.token("BINDING")).rstrip(" \t\r\n=") for x in nodes]
    return names, [r.look(x.token("SSA")) for x in nodes]


def plain(r: Reader, x: Known) -> Value:
    """A value that a loop carries. Raises Violation for a view."""
    if isinstance(x, (Value, Buffer)):
        return r.held(x) if isinstance(x, Buffer) else x
    raise Violation("UnknownOp", f"a loop that carries {kind_of(x)} cannot be read", at=OP_NAME)


def enter(r: Reader, region: Region, names: list[str], inits: Sequence[Known], carried: list[Storage]) -> None:
    """Give a block its parameters: names of its own, and a value for each of the carried bytes. Raises Violation."""
    require(len(names) == len(inits), "TypeMismatch", f"the block takes {len(names)} values, {len(inits)} are given")
    for name, x in zip(names, inits, strict=True):
        value = Value(plain(r, x).type, "")
        region.params.append(value)
        give(r, name, x, value)
    for s in carried:
        s.held = Value(s.type, r.value_name(s.name))
        region.params.append(s.held)


def same_view(a: View, b: View) -> bool:
    """Whether two views are the same window of the same memory."""
    pairs = zip((*a.offsets, *a.sizes), (*b.offsets, *b.sizes), strict=True)
    return a.memory is b.memory and all(x is y or (number(x) is not None and number(x) == number(y)) for x, y in pairs)


def ends_block(node: Node) -> bool:
    """Whether a statement ends its block."""
    return node.data == "op" and op_name(node) in ("scf.yield", "scf.condition", "return", "func.return")
