"""Each attribute of each operator that is read, in each operator set that has it: an example or a test for every one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools.bridges.onnx import ops
from ptir_tools.bridges.onnx.table import HANDLERS
from tests.bridges.onnx.test_import import model, noise

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper, reference  # noqa: E402

_X, _ROW, _FLAGS = noise(2, 3, 4), noise(3), noise(2, 3, 4) > 0
_IMAGE, _BYTES = noise(1, 2, 7, 7), np.arange(98, dtype=np.uint8).reshape(1, 2, 7, 7)
_TAPS = np.arange(36, dtype=np.uint8).reshape(4, 1, 3, 3)
_SEQUENCE = noise(3, 2, 4)
_TRAINING, _ML = "ai.onnx.preview.training", "ai.onnx.ml"


@dataclass(frozen=True)
class Example:
    """A node whose attributes are not at their defaults. `want` computes the results; a text is what the refusal says; a number
    is an operator set whose node means the same; None asks ONNX Runtime, `...` ONNX's reference evaluator."""

    op: str
    opset: int
    attrs: dict[str, Any]
    inputs: tuple[Any, ...]
    want: Any = None
    domain: str = ""
    outputs: int = 1
    known: tuple[int, ...] = ()  # operands that are initializers

    def model(self) -> Any:
        """The ModelProto; operands that are None are left out."""
        names = [f"x{k}" if x is not None else "" for k, x in enumerate(self.inputs)]
        outputs = [f"y{k}" for k in range(self.outputs)]
        node = helper.make_node(self.op, names, outputs, domain=self.domain, **self.attrs)
        given: dict[str, Any] = {f"x{k}": np.asarray(x) for k, x in enumerate(self.inputs) if x is not None}
        constant = {f"x{k}": given[f"x{k}"] for k in self.known}
        typed = {k: (helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for k, x in given.items() if k not in constant}
        made = model([node], typed, outputs, constant, self.opset)
        if self.domain:
            made.opset_import.append(helper.make_opsetid(self.domain, self.opset))
            made.opset_import[0].version = 21
        for output in made.graph.output:
            output.ClearField("type")
        return made

    def feeds(self) -> dict[str, Any]:
        """The arrays of the operands that are inputs."""
        return {f"x{k}": np.asarray(x) for k, x in enumerate(self.inputs) if x is not None and k not in self.known}


def _subgraph() -> Any:
    """The body of a scan: the sum of the carried value and a slice, and the double of the slice."""
    nodes = [helper.make_node("Add", ["h", "s"], ["n"]), helper.make_node("Add", ["s", "s"], ["d"])]
    h, s, n, d = (helper.make_tensor_value_info(name, 1, [2]) for name in "hsnd")
    return helper.make_graph(nodes, "body", [h, s], [n, d])


def _sparse() -> Any:
    values = numpy_helper.from_array(np.array([5.0, 7.0], np.float32), "v")
    return helper.make_sparse_tensor(values, numpy_helper.from_array(np.array([1, 4])), [2, 3])


def _binary(op: str, f: Callable[[Any, Any], Any], x: Any = _X, y: Any = _ROW, opset: int = 6) -> list[Example]:
    attrs = {"broadcast": 1, "axis": 1}
    return [
        Example(op, opset, attrs, (x, y), lambda: [f(x, y[:, None])]),
        Example(op, opset, {"broadcast": 1, "axis": -2}, (x, y), lambda: [f(x, y[:, None])]),
        Example(op, opset, {"broadcast": 1}, (x, y[:1].reshape(1, 1)), lambda: [f(x, y[0])]),
        Example(op, opset, {"broadcast": 1}, (x, x[0, :, :]), lambda: [f(x, x[0])]),
        Example(op, opset, {}, (x, x[0, :, :]), "does not fit|do not broadcast"),
        Example(op, opset, {"broadcast": 1, "axis": 0}, (x, y), "does not fit|do not broadcast"),
    ]


def _flat(f: Callable[[Any], Any], x: Any, at: int) -> Any:
    return f(x.reshape(int(np.prod(x.shape[:at])), -1)).reshape(x.shape)


def _softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _hardmax(x: Any) -> Any:
    return (np.arange(x.shape[-1]) == x.argmax(-1)[..., None]).astype(x.dtype)


def _norm(x: Any, *statistics: Any) -> Any:
    scale, bias, mean, variance = statistics
    return scale * (x - mean) / np.sqrt(variance + 1e-5) + bias


_STATISTICS = tuple(abs(noise(3, k)[:, 0]) for k in (1, 2, 3, 4))
_WHOLE = tuple(abs(noise(3, 4, k)[..., 0]) for k in (1, 2, 3, 4))
_POSITIVE = abs(_X) + 0.5
_REDUCED: dict[str, Callable[..., Any]] = {
    "ReduceL1": lambda x, a: abs(x).sum(a), "ReduceL2": lambda x, a: np.sqrt((x * x).sum(a)), "ReduceMax": lambda x, a: x.max(a),
    "ReduceLogSum": lambda x, a: np.log(x.sum(a)), "ReduceLogSumExp": lambda x, a: np.log(np.exp(x).sum(a)),
    "ReduceMean": lambda x, a: x.mean(a), "ReduceMin": lambda x, a: x.min(a), "ReduceProd": lambda x, a: x.prod(a),
    "ReduceSum": lambda x, a: x.sum(a), "ReduceSumSquare": lambda x, a: (x * x).sum(a),
}  # fmt: skip


def _reductions(op: str, f: Callable[..., Any]) -> list[Example]:
    newest = 18 if op != "ReduceSum" else 13
    return [
        Example(op, 11, {"axes": [0, 2], "keepdims": 0}, (_POSITIVE,), lambda: [f(_POSITIVE, (0, 2))]),
        Example(op, newest, {"noop_with_empty_axes": 1, "keepdims": 0}, (_POSITIVE,), lambda: [f(_POSITIVE[None], 0)]),
    ]


def _recurrent(op: str, gates: int) -> list[Example]:
    names = {"RNN": ["Affine"], "GRU": ["HardSigmoid", "ScaledTanh"], "LSTM": ["HardSigmoid", "ScaledTanh", "LeakyRelu"]}[op]
    betas = {"RNN": [0.2], "GRU": [0.4, 0.9], "LSTM": [0.4, 0.9]}[op]
    weights = (_SEQUENCE, noise(1, gates * 3, 4) * 0.5, noise(1, gates * 3, 3) * 0.5, noise(1, gates * 6) * 0.5)
    attrs = {"activations": names, "activation_alpha": [0.3, 0.8, 0.05][: len(names)], "activation_beta": betas, "hidden_size": 3}
    found = [
        Example(op, 14, attrs, weights, outputs=2),
        Example(op, 14, {"clip": 0.3, "hidden_size": 3}, weights, outputs=2),
        Example(op, 14, {"hidden_size": 4}, weights, "do not fit"),
        Example(op, 14, {"hidden_size": 3, "direction": "bidirectional"}, weights, "do not fit"),
        Example(op, 1, {"output_sequence": 1, "hidden_size": 3, "direction": "reverse"}, weights, 7, outputs=2),
    ]
    if op == "GRU":
        found.append(Example(op, 14, {"linear_before_reset": 1, "hidden_size": 3}, weights, outputs=2))
    if op == "LSTM":
        found.append(Example(op, 14, {"input_forget": 1, "hidden_size": 3}, weights, outputs=3))
    return found


_CONVOLVED = {"dilations": [2, 1], "strides": [1, 2], "group": 2, "kernel_shape": [3, 3]}
_QUANTIZED = (_BYTES, np.float32(0.113), np.uint8(3), _TAPS, np.float32(0.237), np.uint8(2), np.float32(9.71), np.uint8(5))
_MOMENTS = (noise(1, 3)[0], noise(3, 1)[:, 0], abs(_ROW))
_MOVED = tuple(0.3 * noise(1, 18, *places) for places in ((3, 4), (5, 5)))
EXAMPLES = [
    *_binary("Add", np.add), *_binary("Sub", np.subtract), *_binary("Mul", np.multiply), *_binary("Div", np.divide),
    *_binary("Add", np.add, opset=1), *_binary("Pow", np.power, x=_POSITIVE, opset=1),
    *_binary("Equal", np.equal, x=_X.round(), y=_ROW.round(), opset=1),
    *_binary("Less", np.less, opset=1), *_binary("Greater", np.greater, opset=1),
    *_binary("And", np.logical_and, _FLAGS, _FLAGS[0, :, 0], opset=1),
    *_binary("Or", np.logical_or, _FLAGS, _FLAGS[0, :, 0], opset=1),
    *_binary("Xor", np.logical_xor, _FLAGS, _FLAGS[0, :, 0], opset=1),
    Example("PRelu", 6, {}, (_X, _ROW), lambda: [np.where(_X < 0, _X * _ROW[:, None], _X)]),
    Example("PRelu", 6, {}, (noise(2, 3, 3), _ROW), lambda: [np.where((x := noise(2, 3, 3)) < 0, x * _ROW[:, None], x)]),
    Example("PRelu", 7, {}, (noise(2, 3, 3), _ROW), lambda: [np.where((x := noise(2, 3, 3)) < 0, x * _ROW, x)]),
    Example("BatchNormalization", 6, {"is_test": 1}, (_X, *_STATISTICS), lambda: [_norm(_X, *(v[:, None] for v in _STATISTICS))]),
    Example("BatchNormalization", 6, {"is_test": 0}, (_X, *_STATISTICS), "training mode"),
    Example("BatchNormalization", 7, {"spatial": 0}, (_X, *_WHOLE), lambda: [_norm(_X, *_WHOLE)]),
    Example("BatchNormalization", 7, {"spatial": 0}, (_X, *_STATISTICS), "have rank 2"),
    Example(
        "BatchNormalization", 15, {"training_mode": 1, "momentum": 0.25}, (_X, *_STATISTICS),
        lambda: [
            _norm(_X, *(v[:, None] for v in _STATISTICS[:2]), _X.mean((0, 2))[:, None], _X.var((0, 2))[:, None]),
            0.25 * _STATISTICS[2] + 0.75 * _X.mean((0, 2)), 0.25 * _STATISTICS[3] + 0.75 * _X.var((0, 2)),
        ],
        outputs=3,
    ),
    Example("Cast", 1, {"to": "INT32"}, (_X,), lambda: [_X.astype(np.int32)]),
    Example("Cast", 1, {"to": "NUMBER"}, (_X,), "no type NUMBER"),
    Example("Cast", 24, {"to": TensorProto.INT32, "round_mode": "down"}, (_X,), "the attribute `round_mode`"),
    Example("CastLike", 24, {"round_mode": "down"}, (_X, np.int32(0)), "the attribute `round_mode`"),
    Example("Clip", 6, {"min": -0.5, "max": 0.25}, (_X,), lambda: [np.clip(_X, np.float32(-0.5), np.float32(0.25))]),
    Example("Clip", 1, {"min": -0.5, "max": 0.25}, (_X,), lambda: [np.clip(_X, np.float32(-0.5), np.float32(0.25))]),
    Example("Constant", 12, {"sparse_value": _sparse()}, (), lambda: [np.array([[0, 5, 0], [0, 7, 0]], np.float32)]),
    Example("Constant", 12, {"value_floats": [0.5, 2.0]}, (), lambda: [np.array([0.5, 2], np.float32)]),
    Example("Constant", 12, {"value_string": "a"}, (), "strings"),
    Example("Constant", 12, {"value_strings": ["a"]}, (), "strings"),
    Example("Concat", 3, {}, (_X, _X), lambda: [np.concatenate([_X, _X], 1)]),
    Example("Conv", 11, _CONVOLVED, (_IMAGE, noise(4, 1, 3, 3))),
    Example("Conv", 11, {"kernel_shape": [2, 2]}, (_IMAGE, noise(4, 2, 3, 3)), "kernel_shape"),
    Example("ConvTranspose", 11, {"kernel_shape": [2, 2]}, (_IMAGE, noise(2, 4, 3, 3)), "kernel_shape"),
    Example("Conv", 11, {"strides": [2]}, (_IMAGE, noise(4, 2, 3, 3)), "2 are wanted"),
    Example("ConvInteger", 10, _CONVOLVED, (_BYTES, _TAPS)),
    Example("ConvInteger", 10, {"auto_pad": "SAME_LOWER", "strides": [2, 2], "group": 2}, (_BYTES, _TAPS)),
    Example("QLinearConv", 10, _CONVOLVED, _QUANTIZED),
    Example("QLinearConv", 10, {"pads": [1, 0, 2, 1], "group": 2}, _QUANTIZED),
    Example("QLinearConv", 10, {"auto_pad": "SAME_UPPER", "strides": [2, 2], "group": 2}, _QUANTIZED),
    Example(
        "DeformConv", 19, {"dilations": [2, 1], "strides": [1, 2], "pads": [0, 1, 0, 1]},
        (_IMAGE, noise(4, 2, 3, 3), _MOVED[0]), ...,
    ),
    Example("DeformConv", 19, {"group": 2}, (_IMAGE, noise(4, 1, 3, 3), _MOVED[1]), ...),
    Example("DepthToSpace", 10, {"blocksize": 2}, (noise(1, 8, 2, 3),)),
    Example(
        "DequantizeLinear", 23, {"output_dtype": TensorProto.FLOAT16}, (np.arange(6, dtype=np.int8), np.float32(0.5)),
        lambda: [(np.arange(6) * 0.5).astype(np.float16)],
    ),
    Example(
        "QuantizeLinear", 19, {"saturate": 0},
        (np.array([1, 1000, -2], np.float32), np.float32(0.5), np.zeros((), ml_dtypes.float8_e4m3fn)),
        lambda: [np.array([2, np.nan, -4]).astype(ml_dtypes.float8_e4m3fn)], known=(2,),
    ),
    Example(
        "QuantizeLinear", 23, {"precision": TensorProto.FLOAT}, (np.array([1.0, 3.3], np.float16), np.float16(0.1)),
        lambda: [np.rint(np.float32(np.array([1.0, 3.3], np.float16)) / np.float32(np.float16(0.1))).astype(np.uint8)],
    ),
    Example("Dropout", 6, {"is_test": 1, "ratio": 0.75}, (_X,), lambda: [_X]),
    Example("Dropout", 1, {"is_test": 0}, (_X,), "training mode"),
    Example("Dropout", 10, {"ratio": 0.75}, (_X,), lambda: [_X]),
    *_recurrent("RNN", 1), *_recurrent("GRU", 3), *_recurrent("LSTM", 4),
    Example(
        "Gemm", 6, {"broadcast": 1, "beta": 0.5}, (noise(2, 3), noise(3, 4), noise(4)),
        lambda: [noise(2, 3) @ noise(3, 4) + 0.5 * noise(4)],
    ),
    Example("GlobalLpPool", 1, {"p": 1.0}, (_X,), lambda: [abs(_X).sum(2, keepdims=True)]),
    Example("GlobalLpPool", 2, {"p": 1}, (_X,), lambda: [abs(_X).sum(2, keepdims=True)]),
    Example("GridSample", 16, {"mode": "bicubic", "align_corners": 1}, (_IMAGE, np.tanh(noise(1, 3, 4, 2)))),
    Example("GroupNormalization", 21, {"num_groups": 1, "stash_type": 10}, (_X, _ROW, _ROW), "the attribute `stash_type`"),
    Example("RMSNormalization", 23, {"stash_type": 16}, (_X, noise(4)), "not computed in f32"),
    Example("Hardmax", 11, {"axis": 2}, (_X,), lambda: [_flat(_hardmax, _X, 2)]),
    Example("Softmax", 11, {"axis": 0}, (_X,), lambda: [_flat(_softmax, _X, 0)]),
    Example("Softmax", 1, {}, (_X,), lambda: [_flat(_softmax, _X, 1)]),
    Example("Hardmax", 1, {"axis": 0}, (_X,), lambda: [_flat(_hardmax, _X, 0)]),
    Example("LogSoftmax", 1, {}, (_X,), lambda: [np.log(_flat(_softmax, _X, 1))]),
    Example("LogSoftmax", 11, {"axis": 0}, (_X,), lambda: [np.log(_flat(_softmax, _X, 0))]),
    Example("LpPool", 1, {"p": 1.0, "kernel_shape": [2]}, (_X,), lambda: [abs(_X)[..., 1:] + abs(_X)[..., :-1]]),
    Example("LpPool", 18, {"ceil_mode": 1, "kernel_shape": [3], "strides": [2]}, (abs(_X),)),
    Example(
        "MaxUnpool", 11, {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [0, 0, 1, 1]},
        (noise(1, 1, 2, 2), np.array([[[[0, 2], [4, 7]]]])), lambda: [_unpooled()],
    ),
    Example(
        "MelWeightMatrix", 17, {"output_datatype": TensorProto.DOUBLE},
        (np.int64(8), np.int64(16), np.int64(8192), np.float32(0), np.float32(4096)), ..., known=(0, 1, 2, 3, 4),
    ),
    Example("Pad", 1, {"paddings": [0, 1, 0, 2, 0, 0], "value": 7.0}, (_X,), lambda: [_padded()]),
    Example("Pad", 2, {"pads": [0, 1, 0, 2, 0, 0], "value": 7.0}, (_X,), lambda: [_padded()]),
    Example("Pad", 2, {"pads": [0, 1, 0, 0, 0, 2], "mode": "reflect"}, (_X,), lambda: [_mirrored()]),
    Example(
        "Range", 27, {"stash_type": TensorProto.DOUBLE}, (np.int64(0), np.int64(4), np.int64(1)), "the attribute `stash_type`",
        known=(0, 1, 2),
    ),
    *(example for op, f in _REDUCED.items() for example in _reductions(op, f)),
    Example("Reshape", 1, {"shape": [4, 0, -1]}, (_X,), lambda: [_X.reshape(4, 3, 2)]),
    Example(
        "RoiAlign", 16, {"spatial_scale": 0.5, "output_height": 2, "output_width": 2, "sampling_ratio": 2},
        (_IMAGE, np.array([[1, 1, 9, 8]], np.float32), np.array([0])),
    ),
    Example("STFT", 17, {"onesided": 0}, (noise(1, 16, 1), np.int64(4), noise(8)), lambda: [_frames()], known=(1,)),
    Example(
        "Scan", 8, {"num_scan_inputs": 1, "body": _subgraph(), "directions": [1]}, (None, noise(2, 2), noise(2, 3, 2)), outputs=2
    ),
    Example(
        "Scan", 11,
        {"num_scan_inputs": 1, "body": _subgraph(), "scan_input_axes": [1], "scan_output_axes": [1], "scan_input_directions": [1],
         "scan_output_directions": [1]},
        (noise(2), noise(2, 3)), lambda: [noise(2) + noise(2, 3).sum(1), 2 * noise(2, 3)], outputs=2,
    ),
    Example("Selu", 1, {"alpha": 2.0, "gamma": 3.0}, (_X,), lambda: [np.where(_X > 0, 3 * _X, 6 * np.expm1(_X))]),
    Example("Selu", 1, {}, (_X,), lambda: [1.0507 * np.where(_X > 0, _X, 1.6732 * np.expm1(_X))]),
    Example("Slice", 1, {"axes": [1, 2], "starts": [1, -3], "ends": [1000, -1]}, (_X,), lambda: [_X[:, 1:, -3:-1]]),
    Example("Split", 1, {"axis": 2, "split": [1, 3]}, (_X,), lambda: [_X[..., :1], _X[..., 1:]], outputs=2),
    Example("Split", 11, {"axis": 2, "split": [1, 3]}, (_X,), lambda: [_X[..., :1], _X[..., 1:]], outputs=2),
    Example("Split", 18, {"axis": 2, "num_outputs": 3}, (_X, np.array([1, 3])), "Split in 2 parts", outputs=2, known=(1,)),
    Example("Squeeze", 11, {"axes": [-1]}, (noise(1, 3, 1),), lambda: [noise(1, 3, 1)[..., 0]]),
    Example("Unsqueeze", 11, {"axes": [-1]}, (_X,), lambda: [_X[..., None]]),
    Example("TensorScatter", 24, {"axis": 1}, (_X, noise(2, 2, 4), np.array([0, 1])), lambda: [_written()]),
    Example("Tile", 1, {}, (_X, np.float32(2), np.float32(1)), lambda: [np.tile(_X, (1, 2, 1))], known=(1, 2)),
    Example("TopK", 1, {"k": 2, "axis": 1}, (_X,), lambda: _best(2), outputs=2),
    Example("TopK", 10, {"axis": 1}, (_X, np.array([2])), lambda: _best(2), outputs=2, known=(1,)),
    Example("TopK", 11, {"axis": 1, "sorted": 0}, (_X, np.array([2])), lambda: _best(2), outputs=2, known=(1,)),
    Example("Upsample", 1, {"height_scale": 2.0, "width_scale": 3.0}, (_IMAGE,), lambda: [_IMAGE.repeat(2, 2).repeat(3, 3)]),
    Example("Upsample", 1, {"height_scale": 2.0, "width_scale": 3.0, "mode": "bilinear"}, (_IMAGE,), lambda: [_bilinear()]),
    Example("Upsample", 7, {"scales": [1.0, 1.0, 2.0, 3.0]}, (_IMAGE,), lambda: [_IMAGE.repeat(2, 2).repeat(3, 3)]),
    Example("Upsample", 9, {"mode": "linear"}, (_IMAGE, np.array([1, 1, 2, 3], np.float32)), lambda: [_bilinear()], known=(1,)),
    Example(
        "LayerNormalization", 17, {"stash_type": TensorProto.BFLOAT16, "axis": 2}, (_X, noise(4)),
        lambda: [
            (_X - _X.mean(2, keepdims=True)) / _X.std(2, keepdims=True) * noise(4),
            _X.mean(2, keepdims=True).astype(ml_dtypes.bfloat16),
        ],
        outputs=2,
    ),
    Example(
        "Adam", 1, {"norm_coefficient_post": 0.25}, (np.float32(0.1), np.int64(0), _ROW, *_MOMENTS),
        lambda: _adam(), _TRAINING, 3,
    ),
]  # fmt: skip


def _unpooled() -> Any:
    out = np.zeros((1, 1, 3, 3), np.float32)
    out.reshape(-1)[[0, 2, 4, 7]] = noise(1, 1, 2, 2).reshape(-1)
    return out


def _padded() -> Any:
    return np.pad(_X, [(0, 2), (1, 0), (0, 0)], constant_values=7)


def _mirrored() -> Any:
    return np.pad(_X, [(0, 0), (1, 0), (0, 2)], "reflect")


def _frames() -> Any:
    signal, window = noise(1, 16, 1)[0, :, 0].astype(np.float64), noise(8)
    spectra = np.fft.fft([signal[i : i + 8] * window for i in (0, 4, 8)])
    return np.stack([spectra.real, spectra.imag], -1)[None].astype(np.float32)


def _written() -> Any:
    out = _X.copy()
    out[0, 0:2], out[1, 1:3] = noise(2, 2, 4)
    return out


def _best(k: int) -> list[Any]:
    at = np.argsort(-_X, 1, kind="stable")[:, :k]
    return [np.take_along_axis(_X, at, 1), at]


def _bilinear() -> Any:
    """Coordinates are those of the results by the scales; the last elements repeat."""
    x: Any = _IMAGE.astype(np.float64)
    for axis, scale in ((2, 2), (3, 3)):
        n = x.shape[axis]
        at = np.minimum(np.arange(n * scale) / scale, n - 1)
        low = np.floor(at).astype(int)
        part = (at - low).reshape([-1 if a == axis else 1 for a in range(4)])
        x = x.take(low, axis) * (1 - part) + x.take(np.minimum(low + 1, n - 1), axis) * part
    return x.astype(np.float32)


def _adam() -> list[Any]:
    x, (g, v, h) = _ROW, _MOMENTS
    v, h = 0.9 * v + 0.1 * g, 0.999 * h + 0.001 * g * g
    return [(1 - 0.25) * (x - 0.1 * v / (np.sqrt(h) + 1e-6)), v, h]


_CLASSICAL = """
    ArrayFeatureExtractor Binarizer FeatureVectorizer Imputer LinearClassifier LinearRegressor Normalizer Scaler SVMRegressor
    ZipMap
"""

# Attributes that other tests are about.
ELSEWHERE = {
    ("", "ConcatFromSequence"): "bridges/onnx/test_import.py::test_sequences_of_known_lengths_are_their_elements",
    **{(_ML, name): "bridges/onnx/test_classical.py" for name in _CLASSICAL.split()},
    (_ML, "TreeEnsemble"): "bridges/onnx/test_trees.py::test_ensembles_of_set_5",
    (_ML, "TreeEnsembleClassifier"): "bridges/onnx/test_trees.py",
    (_ML, "TreeEnsembleRegressor"): "bridges/onnx/test_trees.py",
}


@pytest.mark.parametrize("k", range(len(EXAMPLES)), ids=[f"{k}-{e.op}-{e.opset}" for k, e in enumerate(EXAMPLES)])
def test_an_attribute_means_what_its_operator_set_says(k: int) -> None:
    example = EXAMPLES[k]
    if isinstance(example.want, str):
        with pytest.raises(ptir.Rejected, match=example.want):
            ptir.from_onnx(example.model())
        return
    program = ptir.from_onnx(example.model())
    if isinstance(example.want, int):
        attrs = {k: v for k, v in example.attrs.items() if k != "output_sequence"}
        again = Example(example.op, example.want, attrs, example.inputs, outputs=example.outputs)
        assert ptir.write(program, "ptir") == ptir.write(ptir.from_onnx(again.model()), "ptir")
        return
    if example.want is None:
        runtime = pytest.importorskip("onnxruntime")
        made = example.model()
        session = runtime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
        wanted = session.run(None, example.feeds())
    elif example.want is ...:
        wanted = reference.ReferenceEvaluator(example.model()).run(None, example.feeds())
    else:
        wanted = example.want()
    found = list(ptir.run(program, example.feeds(), engine="native").values())
    assert len(found) == len(wanted)
    for x, y in zip(found, map(np.asarray, wanted), strict=True):
        assert x.shape == y.shape and (x.dtype == y.dtype or y.dtype == np.float64)
        close = 2e-2 if "stash_type" in example.attrs else 1e-5
        np.testing.assert_allclose(x.astype(np.float64), y.astype(np.float64), rtol=close, atol=close)


def _versions() -> list[Any]:
    """Every schema, of every operator set, of an operator that has a handler."""
    assert ops.__name__  # which registers the handlers
    return [s for s in onnx.defs.get_all_schemas_with_history() if (s.domain, s.name) in HANDLERS]


def _declared(attribute: Any) -> tuple[int, bytes]:
    """The type and default of an attribute."""
    return int(attribute.type.value), b"" if attribute.default_value is None else attribute.default_value.SerializeToString()


def _seen(graph: Any, opsets: dict[str, int]) -> set[tuple[str, str, int, str]]:
    """The attributes of nodes that are not at their defaults, by domain, operator and version."""
    found = set()
    for node in graph.node:
        domain = node.domain.removeprefix("ai.onnx") if node.domain == "ai.onnx" else node.domain
        try:
            schema = onnx.defs.get_schema(node.op_type, opsets[domain], domain)
        except onnx.defs.SchemaError:
            continue
        for a in node.attribute:
            default = schema.attributes[a.name].default_value
            if not default.type or helper.get_attribute_value(default) != helper.get_attribute_value(a):
                found.add((domain, node.op_type, schema.since_version, a.name))
            found |= _seen(a.g, opsets)
    return found


def test_every_attribute_of_every_operator_has_an_example() -> None:
    """Of each operator set that the package `onnx` knows: here, in the node tests that it ships, or in a test that is named. An
    attribute that is the same in another operator set needs no example of its own."""
    from tests.suites.onnx_nodes import cases

    models = [c.model for c in cases()] + [e.model() for e in EXAMPLES]
    seen: set[tuple[str, str, int, str]] = set()
    for m in models:
        seen |= _seen(
            m.graph, {o.domain.removeprefix("ai.onnx") if o.domain == "ai.onnx" else o.domain: o.version for o in m.opset_import}
        )
    declared = {(s.domain, s.name, s.since_version, a): _declared(d) for s in _versions() for a, d in s.attributes.items()}
    alike = {
        (domain, op, name, declared[domain, op, version, name])
        for domain, op, version, name in seen
        if (domain, op, version, name) in declared
    }
    left = [
        key
        for key, kind in sorted(declared.items())
        if (key[0], key[1], key[3], kind) not in alike and key[:2] not in ELSEWHERE and key[3] != "consumed_inputs"
    ]
    assert not left


@pytest.mark.parametrize(
    "schema", [s for s in _versions() if "consumed_inputs" in s.attributes], ids=lambda s: f"{s.name}-{s.since_version}"
)
def test_memory_that_may_be_reused_changes_nothing(schema: Any) -> None:
    """`consumed_inputs` of operator sets before 6."""
    shapes = {"BatchNormalization": [[2, 3, 4], *[[3]] * 4], "InstanceNormalization": [[2, 3, 4], [3], [3]]}
    given = shapes.get(schema.name, [[2, 3]] * schema.min_input)
    attrs: dict[str, Any] = {"shape": [3, 2]} if schema.name == "Reshape" else {}
    texts = []
    for more in ({"consumed_inputs": [0] * len(given)}, {}):
        node = helper.make_node(schema.name, [f"x{k}" for k in range(len(given))], ["y"], **attrs, **more)
        if schema.attributes["consumed_inputs"].required and not more:
            node.attribute.append(helper.make_attribute("consumed_inputs", [1]))
        made = model([node], {f"x{k}": shape for k, shape in enumerate(given)}, ["y"], opset=schema.since_version)
        texts.append(ptir.write(ptir.from_onnx(made), "ptir"))
    assert texts[0] == texts[1]


@pytest.mark.parametrize(("op", "message"), [("Elu", "Elu with the attribute `alpha`"), ("Add", "Add with operand 1, `y`")])
def test_what_a_handler_does_not_read_is_refused(op: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HANDLERS, ("", op), lambda node: node[0])
    attrs, operands = ({"alpha": 2.0}, ["x"]) if op == "Elu" else ({}, ["x", "y"])
    made = model([helper.make_node(op, operands, ["z"], **attrs)], {name: [3] for name in operands}, ["z"])
    with pytest.raises(ptir.Rejected, match=message):
        ptir.from_onnx(made)


def test_an_attribute_of_another_type_or_that_a_function_lacks_is_refused() -> None:
    function = helper.make_function(
        "mine", "F", ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])], [helper.make_opsetid("", 21)]
    )
    for node, message in (
        (helper.make_node("Elu", ["x"], ["y"], alpha=1), "is float, not int"),
        (helper.make_node("Gather", ["x", "x"], ["y"], axis=0, k=1), "has no attribute `k`"),
        (helper.make_node("Elu", ["x", "x"], ["y"]), "takes 1 operands, got 2"),
        (helper.make_node("EyeLike", ["x"], ["y", "z"]), "has 2 outputs"),
        (helper.make_node("Cast", ["x"], ["y"]), "needs the attribute `to`"),
        (helper.make_node("F", ["x"], ["y"], domain="mine", alpha=1.0), "has no attribute `alpha`"),
        (helper.make_node("F", ["x", "x"], ["y"], domain="mine"), "has 1 operands"),
    ):
        made = model([node], {"x": [3, 3]}, ["y"])
        made.functions.append(function)
        made.opset_import.append(helper.make_opsetid("mine", 1))
        with pytest.raises(ptir.Rejected, match=message):
            ptir.from_onnx(made)
