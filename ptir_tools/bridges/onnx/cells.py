"""Scans as the recurrent operators of ONNX: `LSTM`, `GRU`, `RNN` and `DynamicQuantizeLSTM`.

A step is built as the reader builds it, and optimized; where the body of a scan is the same, the scan is the operator.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, partial
from itertools import product

from ptir_tools.bridges.onnx.emitter import Emitter
from ptir_tools.bridges.onnx.graph import Out
from ptir_tools.bridges.onnx.idioms import GROUPS, idiom, known, per_channel
from ptir_tools.bridges.onnx.lowerings import in_bytes
from ptir_tools.bridges.onnx.ops.elementwise import relu, sigmoid
from ptir_tools.bridges.onnx.ops.recurrent import Cell
from ptir_tools.bridges.onnx.protocols import Attribute
from ptir_tools.bridges.onnx.table import DOMAIN
from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import F32, SI8, SI32, SI64, UI8, DType
from ptir_tools.core.ir import Op, Operand, Region, Value
from ptir_tools.core.lazy import np
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.typed import TypeGuard
from ptir_tools.core.types import Dim, TensorType, Type, tensor
from ptir_tools.dialects.ptir.builder.build import Graph
from ptir_tools.passes import PassContext, run_pipeline
from ptir_tools.rewrite.expression import tanh
from ptir_tools.rewrite.templates import Bound, matched
from ptir_tools.rewrite.vocabulary import made_by

Types = tuple[TensorType | None, ...]  # of weights; None is a zero point that is 0


def _cells() -> Iterator[Cell]:
    for lengths, flag, other in product((False, True), repeat=3):
        for count in (1, 3):
            yield Cell("LSTM", (sigmoid, tanh, tanh), count, peepholes=flag, coupled=other, lengths=lengths)
        yield Cell("GRU", (sigmoid, tanh), linear=flag or other, inner=other, lengths=lengths)
    for lengths, map_ in product((False, True), (tanh, relu)):
        yield Cell("RNN", (map_,), lengths=lengths)


CELLS = tuple(dict.fromkeys(_cells()))


@cache
def _template(cell: Cell, state: TensorType, weights: Types, optimized: bool) -> tuple[list[Value | None], Sequence[Operand]]:
    """The parameters of a step, and its states and output."""
    graph = Graph("step")
    batch, hidden = state.shape
    vectors = [tensor(F32, (hidden,))] * (cell.inner + 3 * cell.peepholes)
    lengths = [tensor(SI64, (batch,))] * cell.lengths
    gate = tensor(F32, (batch, cell.gates * _number(hidden)))
    types = [*[state] * cell.states, *weights, *vectors, *lengths, gate, tensor(SI64)]
    zero = graph.constant(np.zeros(1, np.int8))
    given = [graph.input(f"p{k}", t.dtype, t.shape) if t is not None else zero for k, t in enumerate(types)]
    made = cell.step(*given)
    program = graph.returns(*made[: cell.states], made[-1])
    if optimized:
        run_pipeline(program, "canonicalize,cse,dce", PassContext(verify_each=False))
    params = iter(program.main.params)
    return [next(params) if t is not None else None for t in types], program.main.results


def _number(d: Dim) -> int:
    assert isinstance(d, int)
    return d


def _plain(t: Type | None) -> TypeGuard[TensorType]:
    """Whether it is the type of a matrix of f32 with a known number of columns."""
    return isinstance(t, TensorType) and t.rank == 2 and t.dtype is F32 and isinstance(t.shape[1], int)


@idiom("scan")
def _recurrent(e: Emitter, op: Op) -> tuple[Out, ...] | None:
    """A recurrent operator of one direction; the products of its inputs are before the scan."""
    (body,) = op.regions
    count, state = op.attr("carry_count"), body.params[0].type
    if not e.as_onnx or len(body.results) > count + 1 or not _plain(state):
        return None
    for cell in CELLS:
        if count < cell.states or not _has_gates(body.params[count:], cell, state):
            continue
        for weights in _weights(body.params, cell, state):
            for optimized in (True, False):
                step = _step(op, cell, *_template(cell, state, weights, optimized))
                if step is not None and (inputs := _inputs(e, step)) is not None:
                    outs = _node(e, cell, step, inputs, op.operands[: cell.states])
                    kept = map(e.tensor, op.operands[cell.states : count])
                    return None if outs is None else (*outs[1:], *kept, *outs[: len(body.results) - count])
    return None


_GRUS = ((False, False), (True, False), (True, True))  # `linear` and `inner`
SINGLE = {  # the last op of a step, what it reads at some depth, and the cells that end so
    "mul": (("tanh",), (Cell("LSTM", (sigmoid, tanh, tanh)),)),
    "add": (("mul", "tanh"), tuple(Cell("GRU", (sigmoid, tanh), linear=linear, inner=inner) for linear, inner in _GRUS)),
    "tanh": (("add", "dot_general"), (Cell("RNN", (tanh,)),)),
}


@cache
def _alone(cell: Cell, state: TensorType, columns: int) -> tuple[list[Value], Sequence[Operand]]:
    """The parameters of a step that is no scan, and its states. Where the matrix is read in two parts, both are parameters; the
    inner bias has a row for each of the batch."""
    graph = Graph("step")
    hidden, rows = _number(state.shape[1]), cell.gates * _number(state.shape[1])
    held = [graph.input(f"s{k}", F32, state.shape) for k in range(cell.states)]
    apart = cell.kind == "GRU" and not cell.linear
    parts = [graph.input(f"w{n}", F32, (n, columns)) for n in ((rows - hidden, hidden) if apart else (rows,))]
    inner = [graph.input("b", F32, state.shape)] if cell.inner else []
    gate = graph.input("g", F32, (state.shape[0], rows))
    matrix = graph.concat(parts, axis=0) if apart else parts[0]
    made = cell.step(*held, matrix, *inner, gate, graph.constant(np.zeros((), np.int64)))
    program = graph.returns(*made[: cell.states])
    run_pipeline(program, "canonicalize,cse,dce", PassContext(verify_each=False))
    return program.main.params, program.main.results


def _single(e: Emitter, op: Op, block: Region) -> None:
    """A recurrent operator of one step, which is no scan."""
    state, (within, cells) = op.result.type, SINGLE[op.defn.short]
    if not e.as_onnx or not _plain(state) or not _reads(op, within):
        return
    for cell in cells:
        columns = _number(state.shape[1])
        params, new = _alone(cell, state, columns)
        bound = matched(new[0], op.result, params)
        states = [bound.get(x) if bound is not None and isinstance(x, Value) else None for x in new[1:]]
        if bound is not None and all(isinstance(x, Value) for x in states):
            _parts_of(e, op, cell, [bound[p] for p in params], [x for x in states if isinstance(x, Value)])
            return


def _reads(op: Op, names: Sequence[str]) -> bool:
    """Whether an operand is made by the first of the ops `names`, one of its operands by the second, and so on."""
    return not names or any((inner := made_by(x, names[0])) is not None and _reads(inner, names[1:]) for x in op.operands)


def _parts_of(e: Emitter, op: Op, cell: Cell, given: Sequence[Operand], states: Sequence[Value]) -> None:
    """Make the value of `op`, and the other `states`, by the operator of `cell`, if its operands have one."""
    *rest, gate = given
    inner = [rest.pop()] if cell.inner else []
    held, matrix = rest[: cell.states], rest[cell.states :]
    outs: list[Out] | None = None

    def made(k: int) -> Out | None:
        nonlocal outs
        if outs is None:
            outs = _single_node(e, cell, held, matrix, inner, gate) or []
        return outs[k] if outs else None

    for k, v in enumerate((op.result, *states), 1):
        e.parts[v] = partial(made, k)


def _single_node(
    e: Emitter, cell: Cell, held: Sequence[Operand], matrix: Sequence[Operand], inner: Sequence[Operand], gate: Operand
) -> list[Out] | None:
    inputs = _inputs(e, Step(_unspread(gate), [None], [], [], []))
    biases = [per_channel(e, x, 1) for x in inner]
    if inputs is None or inputs.x.shape[:2] != (1, e.tensor(held[0]).shape[0]) or None in biases:
        return None
    parts = [e.tensor(x) for x in matrix]
    weights = parts[0] if len(parts) == 1 else e.joined(parts, 0)
    return _node(e, cell, Step(gate, [None], [], [], []), inputs, held, weights, [x for x in biases if x is not None])


for _name in SINGLE:
    GROUPS.setdefault(f"ptir.{_name}", []).append(_single)


def _has_gates(params: Sequence[Value], cell: Cell, state: TensorType) -> bool:
    return any(_plain(t := p.type) and t.shape[1] == cell.gates * _number(state.shape[1]) for p in params)


def _weights(params: Sequence[Value], cell: Cell, state: TensorType) -> Iterator[Types]:
    """The types that weights of a cell may have."""
    hidden = _number(state.shape[1])
    columns = cell.gates * hidden
    if cell.weights == 1:
        yield (tensor(F32, (columns, hidden)),)
        return
    for dtype in (SI8, UI8):
        if any(isinstance(p.type, TensorType) and p.type.dtype is dtype for p in params):
            for point in (None, tensor(SI32, (hidden, columns)), tensor(dtype, (1,)), tensor(dtype, (columns,))):
                yield tensor(dtype, (hidden, columns)), tensor(F32, (columns,)), point


class Step(NamedTuple):
    """What a step reads: the operands of the scan. `weights` are the matrix, and scales and zero points (None: 0) of it."""

    gate: Operand
    weights: list[Operand | None]
    inner: list[Operand]
    peepholes: list[Operand]
    lengths: list[Operand]


def _step(op: Op, cell: Cell, params: Sequence[Value | None], made: Sequence[Operand]) -> Step | None:
    """The operands of the scan, if its body is this step."""
    (body,) = op.regions
    count, states = op.attr("carry_count"), cell.states
    holes = [p for p in params if p is not None]
    bound: Bound | None = {}
    for mine, found in zip(made, [*body.results[:states], *body.results[count:]], strict=False):
        bound = matched(mine, found, holes, bound) if bound is not None else None
    if bound is None or [bound.get(p) for p in holes[:states]] != body.params[:states]:
        return None
    operands = dict(zip(body.params, op.operands, strict=True))
    changed = {p for p, y in zip(body.params[:count], body.results, strict=False) if p is not y}
    read: list[Operand | None] = []
    for p in params[states:-1]:
        x = bound.get(p) if p is not None else None
        if isinstance(x, Value) and x in operands and x not in changed:
            x = operands[x]
        elif isinstance(x, Value):
            if x.op is None or not x.op.defn.is_constant:
                return None
            x = x.op.attrs[0]
        read.append(x)
    gate = read.pop()
    if bound.get(holes[-2]) not in body.params[count:] or gate is None:
        return None
    rest = iter(x for x in read[cell.weights :] if x is not None)
    inner, peepholes = ([next(rest) for _ in range(n)] for n in (int(cell.inner), 3 * cell.peepholes))
    return Step(gate, read[: cell.weights], inner, peepholes, list(rest))


class Inputs(NamedTuple):
    """`x` [T, B, I], whose products with `weight` are the gates. `turned`: the last step is first. A quantized weight has scales
    and a zero point."""

    x: Out
    weight: Out
    bias: Out | None
    turned: bool
    scaling: tuple[Array, Out] | None = None


def _inputs(e: Emitter, step: Step) -> Inputs | None:
    gates, matrix = step.gate, step.weights[0]
    take = made_by(gates, "take")
    at = known(e, take.operands[1]) if take is not None else None
    if take is not None and (at is None or not np.array_equal(at, np.arange(at.size)[::-1])):
        return None
    whole = take.operands[0] if take is not None else gates
    total = made_by(whole, "add")
    for term, more in (total.operands, total.operands[::-1]) if total is not None else ((whole, None),):
        bias = per_channel(e, more, 2) if more is not None else None
        if more is not None and bias is None:
            continue
        found = _product(e, term) if len(step.weights) == 1 else _quantized(e, term, matrix)
        if found is not None:
            return found._replace(bias=bias, turned=take is not None)
    return None


def _product(e: Emitter, x: Operand) -> Inputs | None:
    dot = made_by(x, "dot_general")
    if dot is None or dot.attr("batch_lhs"):
        return None
    source, weight = map(e.tensor, dot.operands)
    sums = [a % v.rank for v, side in ((source, "lhs"), (weight, "rhs")) for a in dot.attr(f"contract_{side}")]
    return Inputs(source, weight, None, False) if (source.rank, weight.rank, sums) == (3, 2, [2, 1]) else None


def _quantized(e: Emitter, x: Operand, like: Operand | None) -> Inputs | None:
    """A product of bytes with their scales; the weights have the dtype of `like`."""
    scaled = made_by(x, "mul")
    for part, scales in (scaled.operands, scaled.operands[::-1]) if scaled is not None else ():
        cast = made_by(part, "cast")
        dot = made_by(cast.operands[0], "dot_general") if cast is not None else None
        factors = made_by(_unspread(scales), "mul")
        if dot is None or factors is None or [dot.attr("contract_lhs"), dot.attr("contract_rhs")] != [(2,), (0,)]:
            continue
        dtype = e.tensor(like).dtype if like is not None else UI8
        left, right = (in_bytes(e, e.tensor(v), dtype) for v in dot.operands)
        ranged = left[0].ranged if left is not None else None
        if left is None or ranged is None or ranged[0].rank != 3 or right is None or right[0].dtype is not dtype:
            continue
        for scale, factor in (factors.operands, factors.operands[::-1]):
            array = known(e, _unspread(factor))
            if e.tensor(_unspread(scale)) is ranged[1] and array is not None:
                return Inputs(ranged[0], right[0], None, False, (array, right[1]))
    return None


def _unspread(x: Operand) -> Operand:
    """What `x` is a broadcast or a reshape of."""
    while (op := made_by(x, "broadcast_to", "reshape")) is not None:
        x = op.operands[0]
    return x


def _node(
    e: Emitter,
    cell: Cell,
    step: Step,
    inputs: Inputs,
    states: Sequence[Operand],
    matrix: Out | None = None,
    inner: Sequence[Out] = (),
) -> list[Out] | None:
    """All states in the order of the steps, and the last ones; None where the zero points of weights are not those of columns.
    `matrix` and `inner` are for those of the step."""
    x, bias = inputs.x, inputs.bias
    (time, batch), hidden = x.shape[:2], _number(e.tensor(states[0]).shape[1])
    rows = cell.gates * hidden
    if matrix is None:
        matrix = e.tensor(step.weights[0]) if step.weights[0] is not None else inputs.weight
    inner = inner or [*map(e.tensor, step.inner)]
    if bias is not None or inner:
        parts = [bias if bias is not None else e.expand(e.scalar(0, F32), (rows,)), *inner]
        filled = e.expand(e.scalar(0, F32), (rows - hidden * len(inner),))
        bias = e.led(e.joined([parts[0], filled, *parts[1:]], 0))
    lengths: list[Out | str] = [e.cast(v, SI32) for v in map(e.tensor, step.lengths)] or [""]
    begin: list[Out | str] = ["" if _is_zero(e, v) else e.led(e.tensor(v)) for v in states]
    peepholes = [e.led(e.joined([e.tensor(v) for v in step.peepholes], 0))] if step.peepholes else []
    operands: list[Out | str] = [x, e.led(inputs.weight), e.led(matrix), "" if bias is None else bias, *lengths, *begin]
    operands += peepholes
    how: dict[str, Attribute] = {"hidden_size": hidden, "direction": "reverse" if inputs.turned else "forward"}
    if cell.linear:
        how["linear_before_reset"] = 1
    if cell.coupled:
        how["input_forget"] = 1
    if cell.kind == "RNN" and cell.maps[0] is relu:
        how["activations"] = ["Relu"]
    name = cell.kind
    if inputs.scaling is not None:
        name, how["domain"] = f"DynamicQuantize{name}", DOMAIN
        point = step.weights[2]
        zero = e.scalar(0, matrix) if point is None else _one(e, point, matrix.dtype)
        if zero.rank > 1 or zero.dtype is not matrix.dtype:
            return None
        more = (e.constant(inputs.scaling[0].astype(np.float32)), inputs.scaling[1], _one(e, step.weights[1], F32), zero)
        operands += [""] * (8 - len(operands))
        operands += [e.led(e.reshape(v, ()) if v.shape == (1,) else v) for v in more]
    types = [tensor(F32, (time, 1, batch, hidden)), *[tensor(F32, (1, batch, hidden))] * cell.states]
    y, *last = e.node(name, operands, types, **how)
    y = e.reshape(y, (time, batch, hidden))
    if inputs.turned:
        assert isinstance(time, int)
        y = e.picked(y, 0, np.arange(time)[::-1])
    return [y, *(e.reshape(v, (batch, hidden)) for v in last)]


def _one(e: Emitter, x: Operand | None, dtype: DType) -> Out:
    """Scales or zero points; one, where they are equal."""
    assert x is not None
    array = known(e, x)
    return e.tensor(x) if array is None else e.constant(array.reshape(-1)[:1] if np.ptp(array) == 0 else array, dtype)


def _is_zero(e: Emitter, x: Operand) -> bool:
    array = known(e, x)
    return array is not None and not array.any()
