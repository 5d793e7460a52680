"""The operators of ONNX Runtime's own domain, held to ONNX Runtime; bodies of functions whose operands are left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ptir_tools as ptir

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
import onnxruntime  # noqa: E402
from onnx import helper, numpy_helper  # noqa: E402

ENGINES = ("reference", "numpy", "native")


def drawn(seed: int) -> Any:
    return np.random.default_rng(seed)


def f(*shape: int) -> Any:
    return drawn(sum(shape)).standard_normal(shape).astype(np.float32)


def u8(*shape: int) -> Any:
    return drawn(sum(shape)).integers(0, 256, shape).astype(np.uint8)


def i8(*shape: int) -> Any:
    """Numbers of 7 bits: of 8, ONNX Runtime saturates the sum of two products on processors without VNNI."""
    return drawn(sum(shape)).integers(-64, 64, shape).astype(np.int8)


def scale(value: float) -> Any:
    return np.array(value, np.float32)


def zero(value: int, dtype: type = np.uint8) -> Any:
    return np.array(value, dtype)


X = (u8(3, 4), scale(0.02), zero(120))
IMAGE = (u8(1, 2, 6, 6), scale(0.02), zero(120))
OUT = (scale(0.05), zero(110))
ZERO8 = zero(-9, np.int8)
UNIT = (scale(1 / 256), zero(0))
PLACES = drawn(0).integers(0, 10, (2, 3))
HEADS = (f(2, 3, 16), f(2, 5, 16), f(2, 5, 16))
WINDOW = (f(1, 2, 5, 5), f(3, 2, 3, 3))
Case = tuple[str, tuple[Any, ...], dict[str, Any], tuple[int, ...]]


def case(op: str, *operands: Any, outputs: tuple[int, ...] = (0,), **attrs: Any) -> Case:
    return op, operands, attrs, outputs


IDS = drawn(0).integers(0, 10, (2, 5)).astype(np.int32)
KEPT = np.array([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]], np.int32)
ANGLES = (np.cos(f(8, 8)), np.sin(f(8, 8)))


def grouped(b: int, s: int, total: int, lengths: Any = None, room: int | None = None, packed: bool = False) -> tuple[Any, ...]:
    """Operands of GroupQueryAttention: 4 heads of 16 in 2 groups; `lengths` are the last places of rows, `room` is the past's."""
    past = total - s if room is None else room
    ends = np.array([total - 1] * b if lengths is None else lengths, np.int32)
    parts = (f(b, s, 128), None, None) if packed else (f(b, s, 64), f(b, s, 32), f(b, s, 32) * 2)
    before = (f(b, 2, past, 16), f(b, 2, past, 16) * 2) if past else (None, None)
    return *parts, *before, ends, np.array(total, np.int32)


def one(x: int) -> Any:
    """A number as operands of attention have it."""
    return np.array([x], np.int32)


STEP = (f(2, 1, 16), f(2, 1, 16) * 2, f(2, 1, 16) * 3)
CACHE = (f(2, 4, 8, 4), f(2, 4, 8, 4) * 2)
SEEN = np.array([[1, 1, 1, 0], [1, 1, 1, 1]], np.int32)
ONE_STEP = "DecoderMaskedMultiHeadAttention"
PROJECTED = (f(2, 3, 8), f(8, 24), f(24))
SHARED: dict[str, Any] = {"num_heads": 4, "past_present_share_buffer": 1, "outputs": (0, 1, 2)}
SWIGLU: dict[str, Any] = {"activation_type": "swiglu", "swiglu_fusion": 1}
LIMITED: dict[str, Any] = {"activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 0.7}
BEAMS = np.array([[[0, 1, 1, 0, 0, 0, 0, 0], [1, 0, 1, 0, 0, 0, 0, 0]]], np.int32)
TURNED = (np.arange(64)[::-1] // 32).astype(np.int32)
EXPERTS = (f(5, 8), f(5, 4), f(4, 12, 8), f(4, 12), f(4, 8, 6), f(4, 8))


def layer(outputs: int, bits: int, seed: int = 0, blocks: int = 0) -> tuple[Any, ...]:
    """Weights of four experts of QMoE with 32 inputs, their scales and biases."""
    weights = drawn(seed).integers(0, 256, (4, outputs, 32 * bits // 8)).astype(np.uint8)
    return weights, f(4, outputs, blocks) ** 2 / 9 if blocks else f(4, outputs) ** 2 / 9, f(4, outputs)


def lstm(directions: int, per_row: bool = False, **attrs: Any) -> Case:
    """A DynamicQuantizeLSTM. Of several rows of a batch, ONNX Runtime quantizes each alone or all at once, by its threads."""
    rows = (directions, 16) if per_row else (directions,)
    w, r = (drawn(n).integers(60, 190, (directions, n, 16)).astype(np.uint8) for n in (6, 4))
    scales = [drawn(n).uniform(0.005, 0.02, rows).astype(np.float32) for n in (7, 8)]
    zeros = np.full(rows, 128, np.uint8)
    attrs = {"hidden_size": 4, **({"direction": "bidirectional"} if directions == 2 else {}), **attrs}
    operands = (f(3, 1, 6), w, r, f(directions, 32), None, f(directions, 1, 4), None, None, scales[0], zeros, scales[1], zeros)
    return case("DynamicQuantizeLSTM", *operands, outputs=(0, 1, 2), **attrs)


CASES = [
    case("QLinearAdd", *X, u8(4), scale(0.03), zero(100), *OUT),
    case("QLinearAdd", i8(3, 4), scale(0.02), ZERO8, i8(1, 4), scale(0.03), ZERO8, scale(0.05), zero(5, np.int8)),
    case("QLinearMul", *X, u8(3, 4), scale(0.03), zero(100), *OUT),
    case("QLinearWhere", np.array([[True], [False], [True]]), *X, u8(3, 4), scale(0.03), zero(100), *OUT),
    case("QLinearSigmoid", *X, *UNIT),
    case("QLinearLeakyRelu", *X, scale(0.02), zero(30)),
    case("QLinearLeakyRelu", *X, scale(0.02), zero(30), alpha=0.2),
    case("QLinearSoftmax", *X, *UNIT, opset=13, axis=-1),
    case("QLinearSoftmax", u8(2, 3, 4), scale(0.1), zero(120), *UNIT, opset=11, axis=1),
    case("QLinearAveragePool", *IMAGE, *OUT, kernel_shape=[2, 2], strides=[2, 2]),
    case("QLinearAveragePool", *IMAGE, *OUT, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
    case("QLinearGlobalAveragePool", *IMAGE, *OUT, channels_last=0),
    case("QLinearConcat", *OUT, *X, u8(3, 2), scale(0.05), zero(90), axis=1),
    case(
        "QGemm", u8(3, 4), scale(0.02), zero(120), i8(5, 4), f(5) ** 2 + 0.01, np.zeros(5, np.int8),
        drawn(1).integers(-500, 500, 5).astype(np.int32), scale(0.5), zero(99), transB=1, alpha=0.7,
    ),
    case("QGemm", u8(4, 3), scale(0.02), zero(120), u8(4, 5), scale(0.01), zero(7), transA=1),
    case("MatMulIntegerToFloat", u8(3, 4), u8(4, 5), scale(0.02), scale(0.03), zero(120), zero(7), f(5)),
    case("MatMulIntegerToFloat", u8(3, 4), u8(4, 5), scale(0.02), f(5), zero(120)),
    case("DynamicQuantizeMatMul", f(3, 4), u8(4, 5), scale(0.03), zero(7), f(5)),
    case("DynamicQuantizeMatMul", f(3, 4), i8(4, 5), scale(0.03)),
    case("QuantizeLinear", f(3, 4), scale(0.02), zero(7, np.uint16)),
    case("DequantizeLinear", i8(3, 4), np.array([0.1, 0.2, 0.3], np.float32), axis=0),
    case("Gelu", f(3, 4)),
    case("FastGelu", f(3, 4)),
    case("FastGelu", f(3, 4), f(4)),
    case("BiasGelu", f(3, 4), f(4)),
    lstm(1), lstm(2, activations=["Sigmoid", "Tanh", "Relu"] * 2), lstm(1, direction="reverse", per_row=True),
    case("QuickGelu", f(3, 4)),
    case("QuickGelu", f(3, 4), alpha=1.0),
    case("FusedMatMul", f(2, 4, 3), f(2, 5, 4), transA=1, transB=1, alpha=0.5),
    case("FusedMatMul", f(4), f(2, 4, 3), transA=1),
    case("FusedConv", *WINDOW, f(3), activation="Relu", pads=[1, 1, 1, 1]),
    case("FusedConv", *WINDOW, f(3), f(1, 3, 5, 5), activation="Relu", pads=[1, 1, 1, 1]),
    case("FusedConv", *WINDOW, activation="Clip", activation_params=[0.0, 0.5]),
    case("FusedConv", *WINDOW, activation="LeakyRelu", activation_params=[0.1]),
    case("FusedConv", *WINDOW, activation="Tanh"),
    case("FusedConv", *WINDOW, activation="HardSigmoid", activation_params=[0.1, 0.4]),
    case("FusedGemm", f(4, 3), f(5, 4), f(5), transA=1, transB=1, alpha=0.5, beta=2.0, activation="Relu"),
    case("FusedGemm", f(3, 4), f(4, 5), activation="LeakyRelu", activation_alpha=0.3),
    case("FusedGemm", f(3, 4), f(4, 5), activation="Tanh"),
    case("SkipLayerNormalization", f(2, 3, 4), f(1, 3, 4), f(4), f(4) * 2, f(4) * 3, outputs=(0, 3), epsilon=1e-5),
    case("SkipLayerNormalization", f(2, 3, 4), f(2, 3, 4) * 2, f(4)),
    case("SkipSimplifiedLayerNormalization", f(2, 3, 4), f(2, 3, 4) * 2, f(4), f(4), outputs=(0, 3), epsilon=1e-5),
    case("MatMulNBits", f(3, 32), u8(5, 2, 8), f(10), K=32, N=5, block_size=16, bits=4),
    case("MatMulNBits", f(3, 40), u8(5, 3, 8), f(15), u8(10), K=40, N=5, block_size=16, bits=4),
    case("MatMulNBits", f(3, 32), u8(5, 2, 8), f(5, 2), f(5, 2), K=32, N=5, block_size=16, bits=4),
    case("MatMulNBits", f(2, 3, 32), u8(5, 2, 8), f(10), None, None, f(5), K=32, N=5, block_size=16, bits=4),
    case("MatMulNBits", f(3, 32), u8(5, 2, 16), f(10), u8(10), K=32, N=5, block_size=16, bits=8),
    case("MatMulNBits", f(3, 32), u8(5, 2, 4), f(10), K=32, N=5, block_size=16, bits=2),
    case("MatMulNBits", f(3, 128), u8(5, 4, 8), f(20), u8(5), K=128, N=5, block_size=32, bits=2),
    case("MatMulNBits", f(3, 64), u8(5, 2, 16), f(10), None, TURNED, K=64, N=5, block_size=32, bits=4),
    case("GatherBlockQuantized", u8(10, 16), IDS, f(10, 2) ** 2, u8(10, 1), bits=4, block_size=16),
    case("GatherBlockQuantized", u8(10, 16), IDS - 10, f(10, 1), bits=8, block_size=16),
    case("GatherBlockQuantized", u8(10, 16), IDS * 3 - 15, f(10, 4), bits=2, block_size=16),
    case("RotaryEmbedding", f(2, 4, 3, 8), np.array([2]), f(10, 4), f(10, 4) * 2, scale=2.0),
    case("RotaryEmbedding", f(2, 3, 16), PLACES, f(10, 2), f(10, 2) * 2, num_heads=2, rotary_embedding_dim=4),
    case("RotaryEmbedding", f(2, 4, 3, 8), PLACES, f(10, 4), f(10, 4) * 2),
    case("RotaryEmbedding", f(2, 3, 16), PLACES, f(10, 4), f(10, 4) * 2, num_heads=2, interleaved=1),
    case("MultiHeadAttention", *HEADS, num_heads=4),
    case("MultiHeadAttention", f(2, 5, 16), *HEADS[1:], num_heads=4, unidirectional=1),
    case("MultiHeadAttention", *HEADS, None, None, f(2, 4, 3, 5), num_heads=4, scale=0.3),
    case(
        "MultiHeadAttention", f(2, 1, 16), f(2, 1, 16), f(2, 1, 16), None, None, None, f(2, 4, 6, 4), f(2, 4, 6, 4),
        outputs=(0, 1, 2), num_heads=4,
    ),
    case("MultiHeadAttention", *HEADS, f(48), num_heads=4),
    case("MultiHeadAttention", *HEADS, None, KEPT, num_heads=4),
    case("MultiHeadAttention", *HEADS, f(48), np.array([5, 3], np.int32), f(1, 4, 3, 5), num_heads=4, mask_filter_value=-5.0),
    case("MultiHeadAttention", f(2, 3, 16), f(2, 4, 5, 4), f(2, 4, 5, 4) * 2, num_heads=4),
    case("MultiHeadAttention", *HEADS, None, np.arange(3, 11, dtype=np.int32), num_heads=4),
    case("MultiHeadAttention", *HEADS, None, KEPT, f(2, 4, 3, 5), num_heads=4, outputs=(0, 3)),
    case("MultiHeadAttention", *STEP, None, None, None, *CACHE, one(3), num_heads=4, outputs=(0, 1, 2)),
    case("MultiHeadAttention", *STEP, None, None, None, *CACHE, one(3), BEAMS, num_heads=4, outputs=(0, 1, 2)),
    case("MultiHeadAttention", *[f(2, 2, 16)] * 3, *[None] * 3, *CACHE, one(3), outputs=(0, 1, 2), num_heads=4, unidirectional=1),
    case(ONE_STEP, *STEP, None, None, *CACHE, one(3), None, None, f(48), **SHARED),
    case(ONE_STEP, *STEP, SEEN, None, *CACHE, one(3), one(2), BEAMS, **SHARED),
    case(ONE_STEP, *STEP, None, f(2, 4, 1, 4), *CACHE, one(3), **SHARED, scale=0.3),
    case(ONE_STEP, f(2, 1, 16), f(2, 4, 5, 4), f(2, 4, 5, 4) * 2, KEPT, num_heads=4, output_qk=1, outputs=(0, 3)),
    case("Attention", *PROJECTED, np.array([3, 2, 0, 1], np.int32), num_heads=2),
    case("Attention", *PROJECTED, np.array([5, 4, 0, 1], np.int32), f(2, 2, 2, 2, 4), num_heads=2, outputs=(0, 1)),
    case("GroupQueryAttention", *grouped(2, 5, 5), num_heads=4, kv_num_heads=2, causal=0),
    case("GroupQueryAttention", *grouped(2, 1, 6), num_heads=4, kv_num_heads=2, qk_output=1, outputs=(0, 1, 2, 3)),
    case("GroupQueryAttention", *grouped(2, 1, 6), num_heads=4, kv_num_heads=2, qk_output=2, outputs=(0, 1, 2, 3)),
    case("FusedMatMul", f(4, 2, 3), f(3, 2, 4), transBatchA=1, transBatchB=1),
    case("FusedMatMul", f(3, 2, 4), f(2, 3, 4), transBatchA=1, transA=1),
    case("MoE", f(5, 8), f(5, 4), f(4, 6, 8), f(4, 6), f(4, 8, 6), f(4, 8), k=2),
    case("MoE", f(2, 3, 8), f(6, 4), f(4, 6, 8), None, f(4, 8, 6), k=2, activation_type="silu", normalize_routing_weights=1),
    case("MoE", f(5, 8), f(5, 4), f(4, 6, 8), f(4, 6), f(4, 8, 6), f(4, 8), activation_type="gelu"),
    case("MoE", *EXPERTS, k=2, **SWIGLU),
    case("MoE", *EXPERTS, k=2, **SWIGLU, **LIMITED),
    case("QMoE", f(5, 32), f(5, 4), *layer(32, 4), *layer(32, 4, 1), k=2, activation_type="gelu"),
    case("QMoE", f(5, 32), f(5, 4), *layer(32, 2), *layer(32, 2, 1), k=2, expert_weight_bits=2, activation_type="identity"),
    case("QMoE", f(5, 32), f(5, 4), *layer(32, 4), *layer(32, 4, 1), *[None] * 6, f(5, 4) ** 2, k=2, activation_type="silu"),
    case(
        "QMoE", f(5, 32), f(5, 4), *layer(64, 4, blocks=2), *layer(32, 4, 1, 2), *[None] * 3, u8(4, 64, 1), u8(4, 32, 1), k=2,
        **SWIGLU, **LIMITED, block_size=16,
    ),
    case("QMoE", f(5, 32), f(5, 4), *layer(64, 4), *layer(32, 4, 1), *[None] * 3, u8(4, 32), u8(4, 16), k=2, **SWIGLU),
    case("Attention", f(2, 3, 8), f(8, 24), f(24), num_heads=2),
    case("Attention", *PROJECTED, np.array([3, 2], np.int32), num_heads=2),
    case("Attention", f(2, 5, 8), f(8, 24), f(24), KEPT, num_heads=2, unidirectional=1, mask_filter_value=-3.0),
    case("Attention", f(2, 3, 8), f(8, 20), f(20), None, None, f(2, 2, 3, 3), num_heads=2, qkv_hidden_sizes=[8, 8, 4], scale=0.2),
    case("Attention", f(2, 3, 8), f(8, 24), f(24), None, f(2, 2, 2, 4, 4), outputs=(0, 1), num_heads=2, unidirectional=1),
    case("QAttention", u8(2, 3, 8), i8(8, 24), f(24), scale(0.02), scale(0.01), None, zero(120), ZERO8, num_heads=2),
    case(
        "QAttention", u8(2, 3, 8), u8(8, 24), f(24), scale(0.02), scale(0.01), np.array([3, 2], np.int32), zero(120), zero(99),
        num_heads=2, unidirectional=1,
    ),
    case(
        "EmbedLayerNormalization", IDS, IDS % 2, f(10, 8), f(6, 8), f(2, 8), f(8), f(8) * 2, (IDS > 2).astype(np.int32),
        outputs=(0, 1, 2),
    ),
    case("EmbedLayerNormalization", IDS, None, f(10, 8), f(6, 8), None, f(8), f(8) * 2, outputs=(0, 1), epsilon=1e-5),
    case("GroupQueryAttention", *grouped(2, 5, 5), outputs=(0, 1, 2), num_heads=4, kv_num_heads=2),
    case("GroupQueryAttention", *grouped(2, 1, 6), outputs=(0, 1, 2), num_heads=4, kv_num_heads=2),
    case("GroupQueryAttention", *grouped(2, 1, 6, [5, 3]), outputs=(0, 1, 2), num_heads=4, kv_num_heads=2, softcap=2.0),
    case("GroupQueryAttention", *grouped(1, 3, 6), outputs=(0, 1, 2), num_heads=4, kv_num_heads=2, local_window_size=2),
    case("GroupQueryAttention", *grouped(2, 1, 6, [5, 3]), *ANGLES, outputs=(0, 1, 2), num_heads=4, kv_num_heads=2, do_rotary=1),
    case(
        "GroupQueryAttention", *grouped(2, 5, 5), *ANGLES, outputs=(0, 1, 2), num_heads=4, kv_num_heads=2, do_rotary=1,
        rotary_interleaved=1,
    ),
    case("GroupQueryAttention", *grouped(2, 5, 5, packed=True), num_heads=4, kv_num_heads=2, k_quant_type="NONE"),
    case(
        "GroupQueryAttention", *grouped(2, 1, 6), None, None, None, f(2, 4, 1, 6), outputs=(0, 1, 2), num_heads=4, kv_num_heads=2,
        smooth_softmax=1,
    ),
    case("GroupQueryAttention", *grouped(2, 1, 6), *[None] * 4, f(4), outputs=(0, 1, 2), num_heads=4, kv_num_heads=2),
    case("GroupQueryAttention", *grouped(2, 1, 6, [4, 2], room=8), outputs=(0, 1, 2), num_heads=4, kv_num_heads=2),
]  # fmt: skip


def model(op: str, operands: tuple[Any, ...], attrs: dict[str, Any], outputs: tuple[int, ...]) -> tuple[Any, dict[str, Any]]:
    """A model of one node, whose first tensor that is no scale is its input, and what goes in."""
    names = ["" if x is None else f"i{k}" for k, x in enumerate(operands)]
    first = next(k for k, x in enumerate(operands) if x is not None and x.ndim > 0)
    made = [f"o{k}" if k in outputs else "" for k in range(max(outputs) + 1)]
    node = helper.make_node(op, names, made, domain="com.microsoft", **attrs)
    x = operands[first]
    given = [helper.make_tensor_value_info(names[first], helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)]
    held = [numpy_helper.from_array(np.asarray(a), names[k]) for k, a in enumerate(operands) if a is not None and k != first]
    typed = {"o3": 1} if "Attention" in op else {}  # the scores have a dtype of their own
    results = [helper.make_tensor_value_info(n, typed[n], None) if n in typed else onnx.ValueInfoProto(name=n) for n in made if n]
    graph = helper.make_graph([node], "g", given, results, held)
    sets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=9), {names[first]: x}


@pytest.mark.parametrize("given", CASES, ids=lambda c: c[0])
def test_an_operator_computes_what_onnx_runtime_computes(given: Case) -> None:
    proto, feeds = model(*given)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    wanted = onnxruntime.InferenceSession(proto.SerializeToString(), options).run(None, feeds)
    program = ptir.from_onnx(proto)
    for engine in ENGINES:
        for found, y in zip(ptir.run(program, feeds, engine=engine).values(), wanted, strict=True):
            assert found.dtype == y.dtype and found.shape == y.shape
            if y.dtype.kind == "f":
                np.testing.assert_allclose(found, y, 1e-5, 1e-6 * np.abs(y).max(), err_msg=engine)
            else:  # ONNX Runtime divides a mean by its count in another order: halves may go either way
                assert np.abs(found.astype(np.int64) - y).max() <= (1 if "Pool" in given[0] else 0), engine


def test_rows_of_a_prompt_may_be_shorter() -> None:
    """What ONNX Runtime gives for places behind the end of a row is not told."""
    proto, feeds = model(*case("GroupQueryAttention", *grouped(2, 5, 5, [4, 2]), outputs=(0, 1, 2), num_heads=4, kv_num_heads=2))
    wanted = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, feeds)
    for engine in ENGINES:
        found = list(ptir.run(ptir.from_onnx(proto), feeds, engine=engine).values())
        for row, n in enumerate((5, 3)):
            np.testing.assert_allclose(found[0][row, :n], wanted[0][row, :n], 1e-5, 1e-5)
        for made, y in zip(found[1:], wanted[1:], strict=True):
            np.testing.assert_array_equal(made, y)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (case("QLinearGlobalAveragePool", *IMAGE, *OUT, channels_last=1), "with the attribute `channels_last`"),
        (case("MultiHeadAttention", *HEADS, None, np.zeros(7, np.int32), num_heads=4), "MultiHeadAttention with a mask of"),
        (case("MoE", f(5, 8), f(5, 4), f(4, 6, 8), None, f(4, 8, 6), use_sparse_mixer=1), "with `use_sparse_mixer`"),
        (case("MultiHeadAttention", f(2, 3, 24), num_heads=4), "1 of query, key and value"),
        (
            case("GroupQueryAttention", *grouped(1, 1, 2), num_heads=4, kv_num_heads=2, causal=0),
            "not causal, with earlier",
        ),
        (case("FusedConv", *WINDOW, activation="Selu"), "there is no activation `Selu`"),
        (case("MatMulNBits", f(3, 32), u8(5, 1, 12), f(5), K=32, N=5, block_size=32, bits=3), "of 3 bits"),
        (
            case("MatMulNBits", f(3, 64), u8(5, 2, 16), f(10), u8(5), TURNED, K=64, N=5, block_size=32),
            "both zero points",
        ),
        (case("RotaryEmbedding", f(2, 4, 3, 8), PLACES, f(10, 4), f(10, 4), is_packed_batching=1), "`is_packed_batching`"),
        (case("GatherBlockQuantized", u8(10, 16), IDS, f(1, 16), quantize_axis=0, block_size=16), "along another axis"),
        (case("QMoE", f(5, 32), f(5, 4), *layer(32, 4), *layer(32, 4, 1), quant_type="fp4"), "that are not integers"),
        (case("QMoE", f(5, 32), f(5, 4), *layer(32, 4), *layer(32, 4, 1), weights_prepacked=1), "laid out for a GPU"),
        (case("Inverse", f(3, 3)), "there is no operator com.microsoft.Inverse"),
        (
            case("GroupQueryAttention", *grouped(1, 1, 2), num_heads=4, kv_num_heads=2, k_quant_type="PER_TENSOR"),
            "`k_quant_type`",
        ),
    ],
    ids=lambda x: x[0] if isinstance(x, tuple) else "",
)
def test_what_an_operator_asks_beyond_its_composition_is_refused(given: Case, reason: str) -> None:
    with pytest.raises(ptir.Rejected, match=reason):
        ptir.from_onnx(model(*given)[0])


def test_an_unknown_operator_is_near_a_known_one() -> None:
    with pytest.raises(ptir.Rejected) as caught:
        ptir.from_onnx(model(*case("FusedMatMull", f(3, 3), f(3, 3)))[0])
    assert caught.value.diagnostics[0].help == "did you mean `FusedMatMul`?"


@pytest.mark.parametrize("op", ["DequantizeLinear", "Attention"])
def test_a_function_passes_on_operands_that_its_call_leaves_out(op: str) -> None:
    """By a handler, and by a body that depends on which operands are there."""
    arity = 3 if op == "DequantizeLinear" else 4
    names, attrs = list("abcd"[:arity]), {} if op == "DequantizeLinear" else {"q_num_heads": 2, "kv_num_heads": 2}
    sets = [helper.make_opsetid("", 23)]
    body = helper.make_function("mine", "F", names, ["y"], [helper.make_node(op, names, ["y"], **attrs)], sets)
    call = helper.make_node("F", ["x", *("s" if arity == 3 else "x" for _ in names[1 : arity - 1])], ["z"], domain="mine")
    x = i8(4, 3) if arity == 3 else f(1, 2, 4)
    given = [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)]
    graph = helper.make_graph([call], "g", given, [onnx.ValueInfoProto(name="z")], [numpy_helper.from_array(scale(0.5), "s")])
    proto = helper.make_model(graph, functions=[body], opset_imports=[*sets, helper.make_opsetid("mine", 1)], ir_version=11)
    if arity == 3:
        wanted = x * np.float32(0.5)
    else:
        q = x.reshape(2, 2, 2).transpose(1, 0, 2).astype(np.float64)
        weight = np.exp(q @ q.transpose(0, 2, 1) / np.sqrt(2))
        wanted = (weight / weight.sum(-1, keepdims=True) @ q).transpose(1, 0, 2).reshape(1, 2, 4)
    for engine in ENGINES:
        (found,) = ptir.run(ptir.from_onnx(proto), {"x": x}, engine=engine).values()
        np.testing.assert_allclose(found, wanted, 1e-6)


def test_a_decoder_of_symbolic_lengths() -> None:
    """As exported language models have it: lengths of rows and the number of all elements come of a mask."""
    text = """<ir_version: 9, opset_import: ["" : 18, "com.microsoft" : 1]>
    g (float[b,s,64] q, float[b,s,32] k, float[b,s,32] v, float[b,2,p,16] pk, float[b,2,p,16] pv, int64[b,t] mask,
       float[16,8] cos, float[16,8] sin)
        => (float[b,s,64] y, float[b,2,t,16] nk, float[b,2,t,16] nv)
        <int64[1] one = {1}, int64 at = {1}> {
        n = ReduceSum (mask, one) m = Sub (n, one) ends = Cast <to: int = 6> (m)
        shape = Shape (mask) whole = Gather <axis: int = 0> (shape, at) total = Cast <to: int = 6> (whole)
        y, nk, nv = com.microsoft.GroupQueryAttention <num_heads: int = 4, kv_num_heads: int = 2, do_rotary: int = 1>
            (q, k, v, pk, pv, ends, total, cos, sin)
    }"""
    proto = onnx.parser.parse_model(text)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    program = ptir.from_onnx(proto)
    optimized = ptir.optimize(program)
    for b, s, p in ((1, 4, 0), (2, 5, 0), (1, 1, 6), (2, 1, 5), (1, 3, 2)):
        feeds = dict(zip("qkv", (f(b, s, 64), f(b, s, 32), f(b, s, 32) * 2), strict=True))
        feeds |= {"pk": f(b, 2, p, 16), "pv": f(b, 2, p, 16) * 2, "mask": np.ones((b, s + p), np.int64)}
        feeds |= {"cos": np.cos(f(16, 8)), "sin": np.sin(f(16, 8))}
        if b == 2:
            feeds["mask"][1, 4:] = 0
        wanted = session.run(None, feeds)
        for which, engine in ((program, "reference"), (program, "numpy"), (optimized, "native")):
            for found, y in zip(ptir.run(which, feeds, engine=engine).values(), wanted, strict=True):
                made, y = (x[0] if s > 1 and x.ndim == 3 else x for x in (found, y))  # behind the end of a row anything may be
                np.testing.assert_allclose(made, y, 1e-5, 1e-5, err_msg=f"{engine} {b} {s} {p}")


def test_packed_operands_of_attention_are_their_parts() -> None:
    """ONNX Runtime has them on GPUs only."""
    q, k, v = (f(2, 5, 4, 3) * n for n in (1, 2, 3))
    flat = [x.reshape(2, 5, 12) for x in (q, k, v)]
    m, feeds = model(*case("MultiHeadAttention", *flat, num_heads=4))
    (wanted,) = ptir.run(ptir.from_onnx(m), feeds).values()
    for operands in ([np.stack([q, k, v], 3)], [flat[0], np.stack([k, v], 3)]):
        m, feeds = model(*case("MultiHeadAttention", *operands, num_heads=4))
        (found,) = ptir.run(ptir.from_onnx(m), feeds).values()
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
