"""RNN, GRU and LSTM: a scan over time. The products with the inputs are computed before it."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.bridges.extent_ops import reversed_along
from ptir_tools.bridges.onnx.ops.elementwise import NAMED, Map, activated, bounded, centered, named
from ptir_tools.bridges.onnx.ops.quantize import by_range
from ptir_tools.bridges.onnx.ops.shape import cut
from ptir_tools.bridges.onnx.table import DOMAIN, Node, fixed, handles, stretched
from ptir_tools.core.arrays import numpy_dtype
from ptir_tools.core.dtypes import F32, SI32, SI64
from ptir_tools.core.lazy import np
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.builder.build import Tensor

_DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}


def _row(x: Tensor, k: int) -> Tensor:
    return cut(x, 0, k, 1).reshape(x.shape[1:])


def _parts(x: Tensor, count: int, a: int) -> list[Tensor]:
    each = fixed(x.shape[a]) // count
    return [cut(x, a, k * each, each) for k in range(count)]


def recur(x: Tensor, matrix: Tensor, factor: Tensor | None = None, point: Tensor | None = None) -> Tensor:
    """The products of the last axis of a tensor with the rows of weights. With `factor` and `point`, the scales and zero points
    of columns of 8-bit integers, the tensor is quantized first, and multiplied by the columns."""
    if factor is None or point is None:
        return x.dot_general(matrix, contract_lhs=[x.rank - 1], contract_rhs=[1])
    whole, scale, zero = by_range(x)
    columns = matrix.cast(SI32) - stretched(point.cast(SI32), matrix.shape)
    total = centered(whole, zero).dot_general(columns, contract_lhs=[x.rank - 1], contract_rhs=[0]).cast(F32)
    return total * stretched(factor * stretched(scale, factor.shape), total.shape)


def _is_quantized(node: Node) -> bool:
    return node.name == "DynamicQuantizeLSTM"


def _each(node: Node, i: int, count: int) -> list[Tensor]:
    """Operand `i` of each direction. Those of a constant are constants, and vectors of equal elements one element."""
    whole, array = node[i], node.array(i)
    if array is None or array.dtype != numpy_dtype(whole.dtype):
        return [_row(whole, k) for k in range(count)]
    return [node.constant(x.reshape(-1)[:1] if x.ndim == 1 and np.ptp(x) == 0 else x) for x in array[:count]]


def _weights(node: Node, count: int) -> list[list[list[Tensor]]]:
    """For each direction the weights of inputs and of states, [gates * hidden, …]; quantized ones, which are transposed, with the
    scales and zero points of their columns."""
    if not _is_quantized(node):
        return [[[w], [r]] for w, r in zip(_each(node, 1, count), _each(node, 2, count), strict=True)]
    result: list[list[list[Tensor]]] = [[] for _ in range(count)]
    for i, scale in ((1, 8), (2, 10)):
        scalings = [_each(node, k, count) for k in (scale, scale + 1)]
        for found, w, *scaling in zip(result, _each(node, i, count), *scalings, strict=True):
            factor, point = (v.reshape([1]) if v.rank == 0 else v for v in scaling)
            found.append([w, stretched(factor, w.shape[1:]), point])
    return result


class Cell(NamedTuple):
    """One step of a recurrent operator."""

    kind: str
    maps: Sequence[Map]
    weights: int = 1  # operands that are weights of states: the matrix; if it is quantized, scales and zero points, too
    linear: bool = False  # of a GRU: the reset gate is applied after the product
    inner: bool = False  # there is a bias for that product
    peepholes: bool = False
    coupled: bool = False
    clip: float | None = None
    lengths: bool = False  # each row of a batch has its own number of steps

    @property
    def states(self) -> int:
        """The number of states."""
        return 2 if self.kind == "LSTM" else 1

    @property
    def gates(self) -> int:
        """The number of gates."""
        return {"RNN": 1, "GRU": 3, "LSTM": 4}[self.kind]

    def step(self, *params: Tensor) -> list[Tensor]:
        """The next states, what stays the same, and the output. `params` are the states; the weights, the inner bias, three
        peepholes and the numbers of steps, as far as the cell has them; the products of the inputs; the number of the step."""
        held, rest, (gate, now) = params[: self.states], list(params[self.states : -2]), params[-2:]
        weights = [rest.pop(0) for _ in range(self.weights)]
        inner = rest.pop(0) if self.inner else None
        peepholes = [stretched(rest.pop(0), held[0].shape) for _ in range(3 * self.peepholes)]
        if self.kind == "LSTM":
            new = self._lstm(gate, held, weights, peepholes)
        elif self.kind == "GRU":
            new = self._gru(gate, held[0], weights, inner)
        else:
            new = [self.maps[0](self._limited(gate + recur(held[0], *weights)))]
        out, h = new[0], held[0]
        if self.lengths:
            on = (now.broadcast_to(rest[0].shape) < rest[0]).reshape([rest[0].shape[0], 1])
            on = stretched(on, h.shape)
            out = on.select(new[0], h.block.full(0.0, h))
            new = [on.select(a, b) for a, b in zip(new, held, strict=True)]
        return [*new, *params[self.states : -2], out]

    def _limited(self, x: Tensor) -> Tensor:
        return bounded(x, -self.clip, self.clip) if self.clip else x

    def _gru(self, gate: Tensor, h: Tensor, weights: list[Tensor], inner: Tensor | None) -> list[Tensor]:
        parts = _parts(gate, 3, 1)
        hidden = fixed(h.shape[1])
        if self.linear:
            *products, product = _parts(recur(h, weights[0]), 3, 1)
        else:
            products = _parts(recur(h, cut(weights[0], 0, 0, 2 * hidden)), 2, 1)
        z, reset = (self.maps[0](self._limited(x + y)) for x, y in zip(parts[:2], products, strict=True))
        if not self.linear:
            product = recur(reset * h, cut(weights[0], 0, 2 * hidden, hidden))
        else:
            product = reset * (product + stretched(inner, product.shape) if inner is not None else product)
        candidate = self.maps[1](self._limited(parts[2] + product))
        return [(1.0 - z) * candidate + z * h]

    def _lstm(self, gate: Tensor, held: Sequence[Tensor], weights: list[Tensor], seen: Sequence[Tensor]) -> list[Tensor]:
        h, cell = held
        i, o, f, c = _parts(gate + recur(h, *weights), 4, 1)
        pi, po, pf = seen or (None,) * 3
        i = self.maps[0](self._limited(i + pi * cell if pi is not None else i))
        f = 1.0 - i if self.coupled else self.maps[0](self._limited(f + pf * cell if pf is not None else f))
        result = f * cell + i * self.maps[1](self._limited(c))
        o = self.maps[0](self._limited(o + po * result if po is not None else o))
        return [o * self.maps[2](result), result]


@handles("RNN", "GRU", "LSTM")
@handles("DynamicQuantizeLSTM", domain=DOMAIN, direction="forward")
def recurrent(node: Node) -> list[Tensor]:
    """All states [time, direction, batch, hidden], the last states, and the last cells of an LSTM."""
    x, batch_first = node.ranked(0, 3), bool(node.attr("layout", 0))
    if batch_first:
        x = x.transpose([1, 0, 2])
    time, batch, _ = x.shape
    directions, hidden = fixed(node.ranked(1, 3).shape[0]), node.ranked(2, 3).shape[1 if _is_quantized(node) else 2]
    kind = node.name.removeprefix("DynamicQuantize")
    if node.given("hidden_size", hidden) != hidden or directions != 1 + (node.attr("direction") == "bidirectional"):
        raise Violation("InvalidModel", f"weights {node[2].type} do not fit `hidden_size` and `direction` of {node.name}")
    node.idle("output_sequence")  # of operator sets before 7: whether the states are an output
    names = node.given("activations") or _DEFAULTS[kind] * directions
    given = {k: list(node.given(f"activation_{k}") or []) for k in ("alpha", "beta")}
    maps = [activated(name, {k: left.pop(0) for k, left in given.items() if left and k in NAMED[named(name)]}) for name in names]
    each = len(maps) // directions
    weights = _weights(node, directions)
    outputs = []
    for k in range(directions):
        turned = node.attr("direction") == "reverse" or k == 1
        states = []
        for i in (5, 6)[: 2 if kind == "LSTM" else 1]:
            zero = node.block.constant(np.zeros((), np.float32)).cast(x.dtype).broadcast_to([batch, hidden])
            first = node[i].transpose([1, 0, 2]) if batch_first and node.has(i) else node.get(i)
            states.append(stretched(_row(first, k), (batch, hidden)) if first is not None else zero)
        outputs.append(_direction(node, kind, x, k, weights[k], turned, states, maps[k * each : k * each + each]))
    y = node.concat([o[0].reshape([time, 1, batch, hidden]) for o in outputs], 1)
    last = [node.concat([o[i].reshape([1, batch, hidden]) for o in outputs], 0) for i in range(1, len(outputs[0]))]
    if batch_first:
        y, last = y.transpose([2, 0, 1, 3]), [v.transpose([1, 0, 2]) for v in last]
    return [y, *last]


def _direction(
    node: Node, kind: str, x: Tensor, k: int, weights: list[list[Tensor]], turned: bool, states: list[Tensor], maps: list[Map]
) -> list[Tensor]:
    """One direction: the states of all steps in order of time, the last state, and the last cell. `weights` are those of inputs
    and of states, each with scales and zero points if it is quantized."""
    bias = _row(node.ranked(3, 2), k) if node.has(3) else None
    of_x, of_h = _parts(bias, 2, 0) if bias is not None else (None, None)
    lengths = node.get(4)
    whole = recur(x, *weights[0])  # [time, batch, gates * hidden]
    linear = bool(node.attr("linear_before_reset", 0))
    if of_x is not None and of_h is not None:
        both = of_x + of_h
        if kind == "GRU" and linear:  # the reset gate is applied before the last bias of the state
            both = node.concat([*_parts(both, 3, 0)[:2], _parts(of_x, 3, 0)[2]], 0)
        whole = whole + stretched(both, whole.shape)
    at = node.iota([whole.shape[0]], SI64, 0)
    if turned:
        whole, at = reversed_along(whole, 0), reversed_along(at, 0)
    inner = [_parts(of_h, 3, 0)[2]] if kind == "GRU" and linear and of_h is not None else []
    peepholes = _parts(_row(node[7], k), 3, 0) if kind == "LSTM" and node.has(7) else []
    kept = [*weights[1], *inner, *peepholes, *([lengths.cast(SI64)] if lengths is not None else [])]
    coupled, clip = bool(node.attr("input_forget", 0)), node.given("clip")
    cell = Cell(kind, maps, len(weights[1]), linear, bool(inner), bool(peepholes), coupled, clip, lengths is not None)
    result = node.block.scan([*states, *kept], [whole, at], cell.step)
    states_out = result[len(states) + len(kept)]
    return [reversed_along(states_out, 0) if turned else states_out, *(result[i] for i in range(len(states)))]
