"""The number of steps of a Loop that only its condition ends, where that compares a counter with a number that does not change.

Converters of TensorFlow write `while i < n` so: the body adds 1 to a carried `i`, and its condition is a Less of `i` and `n`, or
an And of several. The first condition, outside of the Loop, must compare the first `i` with the same `n`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce

from ptir_tools.bridges import extents
from ptir_tools.bridges.extents import Size
from ptir_tools.bridges.onnx.protocols import Scope
from ptir_tools.bridges.onnx.table import Node
from ptir_tools.core.typed import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import onnx

    Makers: TypeAlias = Mapping[str, onnx.NodeProto]  # nodes by their first output


def trips(node: Node, body: onnx.GraphProto) -> Size | None:
    """The steps of a Loop without a trip count; None where they depend on data, or its condition is of another kind."""
    importer, first = node.scope.importer, _makers(node.scope.importer.listing.nodes)
    inner, later = node.scope.inner(), _makers(body.node)
    for name in (*(v.name for v in body.input), *(x for n in body.node for x in n.output)):
        inner.values.pop(name, None)  # an outer value that the body hides
    importer.initializers(body, inner)
    importer.run([n for n in body.node if n.op_type == "Constant"], inner)
    before = _comparisons(node.proto.input[1], first)
    after = [_at_first(node, body, inner, later, *pair) for pair in _comparisons(body.output[0].name, later)]
    counts: list[Size] = []
    for (start, end), pair in zip(before, after, strict=False):
        known = tuple(_number(node.scope, name, first) for name in (start, end))
        if None in known or pair != known or known[0] is None or known[1] is None:
            return None
        counts.append(extents.larger(known[1] - known[0], 0))
    return reduce(extents.smaller, counts) if counts and len(before) == len(after) else None


def _makers(nodes: Iterable[onnx.NodeProto]) -> Makers:
    return {n.output[0]: n for n in nodes if n.output}


def _comparisons(name: str, makers: Makers) -> list[tuple[str, str]]:
    """The operands of the Less that make a condition; none where it has other parts."""
    made = makers.get(_source(name, makers))
    if made is None or made.op_type not in ("Less", "And"):
        return []
    if made.op_type == "Less":
        return [(made.input[0], made.input[1])]
    left, right = (_comparisons(x, makers) for x in made.input)
    return left + right if left and right else []


def _source(name: str, makers: Makers) -> str:
    """The value of which a value is a copy, maybe in another dtype."""
    while (made := makers.get(name)) is not None and made.op_type in ("Identity", "Cast"):
        name = made.input[0]
    return name


def _at_first(
    node: Node, body: onnx.GraphProto, inner: Scope, later: Makers, counter: str, limit: str
) -> tuple[Size | None, Size | None]:
    """What a body compares, before the first step: a counter, to which each step adds 1, and a limit. None for another value."""
    counter, limit = _source(counter, later), _source(limit, later)
    carried = {v.name: k for k, v in enumerate(body.input) if k > 1}
    after = [_source(v.name, later) for v in body.output]  # the carried value k is output k - 1
    made = later.get(counter)
    terms = [_source(x, later) for x in made.input] if made is not None and made.op_type == "Add" else []
    held = [x for x in terms if x in carried and after[carried[x] - 1] == counter]
    if len(held) != 1 or [_number(inner, x, {}) for x in terms if x not in held] != [1]:
        return None, None
    if limit in carried:
        limit = node.proto.input[carried[limit]] if after[carried[limit] - 1] == limit else ""
    return _number(node.scope, node.proto.input[carried[held[0]]], {}), _number(inner, limit, {})


def _number(scope: Scope, name: str, makers: Makers) -> Size | None:
    """The integer or extent that a value is known to be, or that of which it is a copy; None for another value."""
    for known in (name, _source(name, makers)):
        sizes = scope.importer.counted(scope.values.get(known))
        if sizes is not None and len(sizes) == 1:
            return sizes[0]
    return None
