"""Control flow: subgraphs become regions, or are inlined if the condition or the trip count is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count as counting

from ptir_tools.bridges.extent_ops import reversed_along
from ptir_tools.bridges.extents import Extent, Size
from ptir_tools.bridges.node import results_of
from ptir_tools.bridges.onnx.ops.elementwise import logical
from ptir_tools.bridges.onnx.ops.shape import cut
from ptir_tools.bridges.onnx.ops.trips import trips
from ptir_tools.bridges.onnx.protocols import Attribute, Datum, Items, Poisoned, Scope
from ptir_tools.bridges.onnx.table import Node, axis, fixed, handles, refused
from ptir_tools.core import arrays
from ptir_tools.core.diagnostics import Diagnostics, Severity
from ptir_tools.core.dtypes import SI64
from ptir_tools.core.ir import Region as Block
from ptir_tools.core.lazy import np
from ptir_tools.core.typed import TYPE_CHECKING, NoReturn
from ptir_tools.core.types import TensorType
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.builder.build import Build, Tensor
from ptir_tools.dialects.ptir.kernels.targets import stopping

if TYPE_CHECKING:
    import onnx

_UNROLLED = 64  # steps of a loop that is unrolled because a region cannot hold it


class _Unknown(Exception):
    """The end of a loop depends on data."""


class _Failed(Exception):
    """A subgraph was refused; the diagnostics have the reasons."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        super().__init__()
        self.diagnostics = diagnostics


@contextmanager
def _attempt(node: Node) -> Iterator[Diagnostics]:
    """Read a subgraph with separate diagnostics. If they have errors, raises _Failed and removes its ops."""
    importer = node.scope.importer
    before, mine = importer.diagnostics, Diagnostics(importer.source)
    importer.diagnostics = mine
    try:
        with node.block.whole():
            try:
                yield mine
            except Poisoned:
                raise _Failed(mine) from None
            if mine.errors:
                raise _Failed(mine)
    finally:
        importer.diagnostics = before


def _report(node: Node, failed: _Failed) -> NoReturn:
    """Report the errors of a subgraph."""
    for diagnostic in failed.diagnostics:
        node.scope.importer.diagnostics.add(diagnostic)
    raise Poisoned


@contextmanager
def _read(node: Node, mismatch: str) -> Iterator[None]:
    """Report the errors of a subgraph, and (as `mismatch`) regions whose types do not fit."""
    try:
        with _attempt(node):
            yield
    except Violation as violation:
        raise _mismatched(violation, mismatch) from None
    except _Failed as failed:
        _report(node, failed)


def _mismatched(violation: Violation, what: str) -> Violation:
    """The violation, in words of ONNX where the types of regions do not fit."""
    return refused(f"{what}: {violation.message}") if violation.code == "RegionSignatureMismatch" else violation


def inline(scope: Scope, graph: onnx.GraphProto, given: Sequence[Datum]) -> list[Datum]:
    """Append the nodes of a subgraph in place, and return its outputs. An output in error is the caller's."""
    importer = scope.importer
    inner = scope.inner()
    importer.initializers(graph, inner)
    inner.values.update(zip((v.name for v in graph.input), given, strict=True))
    importer.run(graph.node, inner)
    return [inner.datum(v.name) for v in graph.output]


def _tensors(value: Datum) -> list[Tensor]:
    """The tensors in a value that a subgraph reads."""
    parts = value.items if isinstance(value, Items) else (value,)
    return [x for x in parts if isinstance(x, Tensor)]


def _inside(value: Datum, params: Iterator[Tensor]) -> Datum:
    """The value inside a subgraph, with its tensors replaced by parameters."""
    if isinstance(value, Items):
        return Items(tuple(_inside(x, params) for x in value.items))
    return next(params) if isinstance(value, Tensor) else value


class Region:
    """A subgraph as a region. Captured values become parameters after its own."""

    def __init__(self, node: Node, *graphs: onnx.GraphProto) -> None:
        self.node = node
        names = {name: None for graph in graphs for name in node.scope.captured(graph)}
        self.values = {name: node.scope.values[name] for name in names}
        self.tensors = [x for value in self.values.values() for x in _tensors(value)]

    def build(
        self, graph: onnx.GraphProto, own: int, given: Callable[[Sequence[Tensor]], Sequence[Datum]]
    ) -> Callable[..., list[Tensor]]:
        """A function with the parameters `own` and the captured values. It returns the outputs of `graph` as tensors."""
        importer = self.node.scope.importer

        def built(*params: Tensor) -> list[Tensor]:
            inner = self.node.scope.region(params[0].block if params else self.node.block)
            inside = iter(params[own : own + len(self.tensors)])
            inner.values.update((name, _inside(value, inside)) for name, value in self.values.items())
            importer.initializers(graph, inner)
            inner.values.update(zip((v.name for v in graph.input), given(params[:own]), strict=True))
            importer.run(graph.node, inner)
            results = []
            for v in graph.output:
                x = inner.tensor(inner.datum(v.name))
                assert x is not None
                results.append(x)
            self.inner = inner
            return results

        return built


@handles("If")
def if_(node: Node) -> Sequence[Datum]:
    """If: one of two branches."""
    pred = node.datum(0)
    yes, no = node.attr("then_branch"), node.attr("else_branch")
    if (counts := {len(yes.output), len(no.output)}) != {node.outputs}:
        raise Violation("InvalidModel", f"the branches of If have {sorted(counts)} outputs, and If has {node.outputs}")
    if not isinstance(pred, Tensor):
        return inline(node.scope, yes if bool(node.known(0).reshape(())) else no, [])
    region = Region(node, yes, no)
    carried = region.tensors or [pred]  # a region needs at least one parameter
    own = 0 if region.tensors else 1

    def branch(graph: onnx.GraphProto) -> Build:
        built = region.build(graph, own, lambda _: [])
        return lambda *params: built(*params)

    if (squeezed := _squeezing(yes, no)) is not None:
        return inline(node.scope, squeezed, [])
    try:
        with _attempt(node):
            out = node.block.cond(pred.reshape([]), carried, branch(yes), branch(no))
    except Violation as violation:
        raise _mismatched(violation, "the branches of If give different types") from None
    except _Failed as failed:
        out = _one_branch(node, failed, pred.reshape([]), carried, (branch(yes), branch(no)))
    return results_of(out)


def _one_branch(node: Node, failed: _Failed, pred: Tensor, carried: Sequence[Tensor], branches: Sequence[Build]) -> Tensor:
    """An If of which one branch is wrong for these shapes: the run stops where it is taken. Reports the errors of both
    branches, and operators that are not translated."""
    errors = [d for d in failed.diagnostics if d.severity is Severity.ERROR]
    if any(d.code == "UnsupportedOnnx" for d in errors):
        _report(node, failed)
    graph, types = node.block.graph, [x.type for x in carried]
    regions: list[Block | None] = []
    for branch in branches:
        try:
            with _attempt(node):
                regions.append(graph.region_of(branch, types))
        except _Failed:
            regions.append(None)
    sound = next((r for r in regions if r is not None), None)
    if sound is None:
        _report(node, failed)
    why = Violation(errors[0].code, errors[0].message)

    def stopped(*params: Tensor) -> list[Tensor]:
        target, attrs = stopping(why)
        return [params[0].block.op("custom_call", [], types=[t], target=target, attrs=attrs) for t in sound.result_types]

    whole = [graph.region_of(stopped, types) if r is None else r for r in regions]
    return node.block.op("cond", pred, list(carried), regions=whole)


def _squeezing(yes: onnx.GraphProto, no: onnx.GraphProto) -> onnx.GraphProto | None:
    """The branch that squeezes, where the other keeps the value: torch writes a squeeze of an unknown extent so. The run checks
    that the extent is 1."""
    kinds = [[n.op_type for n in graph.node if n.op_type != "Constant"] for graph in (yes, no)]
    return {0: yes, 1: no}[kinds.index(["Squeeze"])] if sorted(kinds) == [["Identity"], ["Squeeze"]] else None


@handles("Loop")
def loop(node: Node) -> Sequence[Datum]:
    """Loop, with a trip count, a condition, or both; the outputs of all iterations are stacked."""
    body = node.attr("body")
    count, condition = node.datum(0), node.datum(1)
    carries = [node.datum(i) for i in range(2, len(node))]
    stacked = len(body.output) - 1 - len(carries)
    known = condition is None or not isinstance(condition, Tensor)
    if not known and count is None and (steps := trips(node, body)) is not None:
        return _counted_loop(node, body, steps, stacked, ends=True)
    if known and condition is not None and not bool(node.known(1).reshape(())):
        count = np.array(0)
    if isinstance(count, np.ndarray) and known:
        steps = count.reshape(-1)[0]
        try:
            if not any(isinstance(x, Items) for x in carries):
                return _counted_loop(node, body, steps, stacked)
            if isinstance(steps, Extent) or int(steps) > _UNROLLED:
                raise refused(f"a Loop of more than {_UNROLLED} steps, or as many as an extent, carries a sequence")
        except _Failed as failed:
            if isinstance(steps, Extent) or int(steps) > _UNROLLED:
                _report(node, failed)
        unrolled = _unroll(node, body, int(steps), carries)
        if unrolled is not None:
            return unrolled
    elif count is None and known and (stacked or any(isinstance(x, Items) for x in carries)):
        unrolled = _unroll(node, body, None, carries)
        if unrolled is not None:
            return unrolled
    if stacked:
        for i in (0, 1):
            if isinstance(node.datum(i), Tensor):
                node.known(i)
        raise refused("the number of steps of a Loop with stacked outputs depends on data")
    return _while_loop(node, body, count, condition)


def _counted_loop(node: Node, body: onnx.GraphProto, steps: Size, stacked: int, ends: bool = False) -> list[Tensor]:
    """A loop with a trip count as a `scan` over the iteration numbers. Raises _Failed if its condition may end it earlier, which
    `ends` rules out."""
    carries = [node[i] for i in range(2, len(node))]
    region = Region(node, body)
    extent = steps.dim if isinstance(steps, Extent) else max(int(steps), 0)
    carried = [*carries, *region.tensors]

    with _attempt(node) as result:
        numbers = node.iota([extent], SI64, 0)

        def step(*params: Tensor) -> list[Tensor]:
            held, at = params[:-1], params[-1]
            own = (*held[: len(carries)], at)
            built = region.build(body, len(own), lambda xs: [xs[-1], np.array(True), *xs[:-1]])
            out = built(*own, *held[len(carries) :])
            on = region.inner.values.get(body.output[0].name)
            if not ends and (isinstance(on, Tensor) or not bool(np.asarray(on).reshape(()))):
                result.error(
                    "UnsupportedOnnx", "the condition of the Loop is computed in its body", node.scope.importer.place.loc
                )
            return [*out[1 : 1 + len(carries)], *held[len(carries) :], *out[1 + len(carries) :]]

        try:
            output = node.block.scan(carried, [numbers], step)
        except Violation as violation:
            result.violation(violation, node.scope.importer.place.loc)
            raise _Failed(result) from None
    elements = results_of(output)
    return [*elements[: len(carries)], *elements[len(carried) :]]


def _unroll(node: Node, body: onnx.GraphProto, steps: int | None, carries: list[Datum]) -> list[Datum] | None:
    """An unrolled loop, or None if its condition is not known or does not end it."""
    held, stacks = list(carries), [[] for _ in range(len(body.output) - 1 - len(carries))]  # type: list[Datum], list[list[Tensor]]
    on: Datum = np.array(True)
    try:
        with _attempt(node):
            for k in counting() if steps is None else range(steps):
                if steps is None and k == _UNROLLED:
                    raise refused(
                        f"a Loop of more than {_UNROLLED} steps, or as many as data say, carries or stacks values of each"
                    )
                out = inline(node.scope, body, [np.array(k), on, *held])
                on, held = out[0], out[1 : 1 + len(carries)]
                for stack, each in zip(stacks, out[1 + len(carries) :], strict=True):
                    x = node.scope.tensor(each)
                    assert x is not None
                    stack.append(x)
                if isinstance(on, Tensor):
                    raise _Unknown
                if not bool(np.asarray(on).reshape(())):
                    break
    except _Unknown:
        return None
    except _Failed as failed:
        _report(node, failed)
    if any(not stack for stack in stacks):
        return [*held, *_empty_stacks(node, body, held, len(stacks))]
    joined = [node.concat([x.reshape([1, *x.shape]) for x in stack], 0) for stack in stacks]
    return [*held, *joined]


def _empty_stacks(node: Node, body: onnx.GraphProto, held: Sequence[Datum], count: int) -> list[Tensor]:
    """The stacked outputs of a loop without iterations: empty, with the types of an iteration."""
    types: list[TensorType] = []
    try:
        with _attempt(node):  # the ops of this iteration are removed
            out = inline(node.scope, body, [np.array(0), np.array(True), *held])
            types += [x.tensor_type for d in out[len(out) - count :] if (x := node.scope.tensor(d)) is not None]
            raise _Unknown
    except _Unknown:
        zeros = [node.constant(np.zeros((), arrays.numpy_dtype(t.dtype)), t.dtype) for t in types]
        return [zero.broadcast_to([0, *t.shape]) for zero, t in zip(zeros, types, strict=True)]
    except _Failed as failed:
        _report(node, failed)


def _while_loop(node: Node, body: onnx.GraphProto, count: Datum, condition: Datum) -> list[Tensor]:
    """A loop that its condition ends."""
    block, scope = node.block, node.scope
    region = Region(node, body)
    at = block.constant(np.array(0, np.int64))
    flag = block.constant(np.array(True)) if condition is None else scope.tensor(condition)
    most = block.constant(np.array(np.iinfo(np.int64).max)) if count is None else scope.tensor(count)
    assert flag is not None and most is not None
    own = [at, most.reshape([]), flag.reshape([]), *(node[i] for i in range(2, len(node)))]
    n = len(own)

    def test(*params: Tensor) -> list[Tensor]:
        inner = params[0].block
        return [logical_and(inner.op("compare_lt", params[0], params[1]), params[2]), *params]

    def step(*params: Tensor) -> list[Tensor]:
        built = region.build(body, n, lambda xs: [xs[0], xs[2], *xs[3:]])
        out = built(*params)
        return [params[0] + 1, params[1], out[0].reshape([]), *out[1:], *params[n:]]

    with _read(node, "what a Loop carries changes its type"):
        result = block.while_([*own, *region.tensors], test, step)
    return [result[i] for i in range(3, n)]


def logical_and(x: Tensor, y: Tensor) -> Tensor:
    """The logical and."""
    return logical("and", x, y) if x.rank else x.select(y, x)


@handles("Scan")
def scan(node: Node) -> list[Tensor]:
    """Scan: the body on slices of the inputs, with carried values."""
    if node.opset < 9:
        return _batched_scan(node)
    return _scanned(node, node.all(), {})


def _batched_scan(node: Node) -> list[Tensor]:
    """Scan before operator set 9: every operand has a batch axis in front, and each batch is scanned separately."""
    if node.has(0):
        raise refused("Scan of operator set 8 with lengths of sequences")
    xs = [node[i] for i in range(1, len(node))]
    batch = fixed(xs[0].shape[0])
    parts = []
    for b in range(batch):
        each = [cut(x, 0, b, 1).reshape(x.shape[1:]) for x in xs]
        parts.append(_scanned(node, each, {"scan_input_directions": node.given("directions")}))
    stacked = ([x.reshape([1, *x.shape]) for x in column] for column in zip(*parts, strict=True))
    return [node.concat(column, 0) for column in stacked]


def _scanned(node: Node, xs: list[Tensor], more: dict[str, Attribute]) -> list[Tensor]:
    body, count = node.attr("body"), node.attr("num_scan_inputs")
    if not 0 <= count <= len(xs):
        raise Violation("InvalidModel", f"Scan with {len(xs)} operands has num_scan_inputs = {count}")
    carries, inputs = xs[: len(xs) - count], xs[len(xs) - count :]
    attrs = {**node.attributes(), **more}
    axes, turned = attrs.get("scan_input_axes") or [0] * count, attrs.get("scan_input_directions") or [0] * count
    inputs = [_first(x, axis(a, x.rank), bool(t)) for x, a, t in zip(inputs, axes, turned, strict=True)]
    region = Region(node, body)
    carried = [*carries, *region.tensors]

    def step(*params: Tensor) -> list[Tensor]:
        held, slices = params[: len(carried)], params[len(carried) :]
        own = (*held[: len(carries)], *slices)
        built = region.build(body, len(own), lambda ps: list(ps))
        out = built(*own, *held[len(carries) :])
        return [*out[: len(carries)], *held[len(carries) :], *out[len(carries) :]]

    with _read(node, "what a Scan carries changes its type"):
        result = node.block.scan(carried, inputs, step)
    outputs = len(body.output) - len(carries)
    elements = results_of(result)
    stacks = elements[len(carried) :]
    out_axes, out_turned = attrs.get("scan_output_axes") or [0] * outputs, attrs.get("scan_output_directions") or [0] * outputs
    moved = [_placed(x, axis(a, x.rank), bool(t)) for x, a, t in zip(stacks, out_axes, out_turned, strict=True)]
    return [*elements[: len(carries)], *moved]


def _first(x: Tensor, a: int, turned: bool) -> Tensor:
    y = x if a == 0 else x.transpose([a, *(i for i in range(x.rank) if i != a)])
    return reversed_along(y, 0) if turned else y


def _placed(x: Tensor, a: int, turned: bool) -> Tensor:
    y = reversed_along(x, 0) if turned else x
    if a == 0:
        return y
    order = list(range(1, x.rank))
    order.insert(a, 0)
    return y.transpose(order)
