"""The constraints of PTIR's ops: each provoked, with its code; symbolic extents; what is inferred."""

import pytest

from ptir_tools.core import extents
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dtypes import INDEX
from ptir_tools.core.expressions import to_dim
from ptir_tools.core.ir import Literal
from ptir_tools.core.symbols import specialize
from ptir_tools.core.types import sym, tensor, tuple_of
from ptir_tools.core.verify import verify
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.ops.scalars import Scalar
from tests.ptir import texts as ptir_texts
from tests.ptir.oracle import DTYPES, code, program, ty

N, M = sym("N"), sym("M")
D = DTYPES
A = ty("f32", 2, 3)
H = ty("f16", 2, 3)
B = ty("f32", 3, 2)
V = ty("f32", 3)
S = ty("f32")
I3 = ty("si32", 3)
BIG = 2**62

ATTRIBUTE, SHAPE, DTYPE, RANK = "InvalidAttributeValue", "OperandShapeMismatch", "OperandDTypeMismatch", "OperandRankMismatch"
DYNAMIC, SUPPORT, ACCUM = "DynamicDimensionMismatch", "DTypeNotSupported", "InvalidAccumDTypeOverride"
NEGATIVE, SI64 = "NegativeDimension", "IntegerPromotionExceedsSi64"


def dot(*types, bl=(), br=(), cl=(1,), cr=(0,), **more):
    return ("dot_general", types, dict(batch_lhs=bl, batch_rhs=br, contract_lhs=cl, contract_rhs=cr, **more))


def pool(x=A, window=(1, 1), strides=(1, 1), padding=((0, 0), (0, 0)), base=(1, 1), dilation=(1, 1), **more):
    lists = {"window_dims": window, "strides": strides, "padding": padding, "base_dilation": base, "window_dilation": dilation}
    return ("reduce_window", (x,), lists | more)


IMAGE, ROWS, UPDATES = ty("f32", 1, 5, 5, 2), ty("si32", 2, 1), ty("f32", 2)


def patches(x=IMAGE, window=(2, 2), **more):
    return ("extract_patches", (x,), dict(window=window, **more))


def scatter(x=V, i=ROWS, u=UPDATES, window=(), inserted=(0,), scattered=(0,), vector=1):
    names = ("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims", "index_vector_dim")
    return ("scatter_add", (x, i, u), dict(zip(names, (window, inserted, scattered, vector), strict=True)))


REFUSED = [
    # elementwise, compare, select, cast
    (("add", (A, B), {}), SHAPE),
    (("add", (A, V), {}), SHAPE),
    (("add", (A, H), {}), DTYPE),
    (("add", (ty("f32", N), ty("f32", M)), {}), DYNAMIC),
    (("add", (ty("f32", N), ty("f32", 4)), {}), DYNAMIC),
    (("add", (tuple_of((A, A)), A), {}), "OperandTypeMismatch"),
    (("clamp", (A, A, B), {}), SHAPE),
    (("clamp", (A, H, A), {}), DTYPE),
    (("compare_lt", (A, B), {}), "CompareOperandsMustMatchShape"),
    (("compare_eq", (A, H), {}), "CompareDTypePromotionInvalid"),
    (("compare_ge", (ty("f32", N), ty("f32", 3)), {}), DYNAMIC),
    (("select", (A, A, A), {}), SUPPORT),
    (("select", (ty("i1", 2, 3), A, H), {}), DTYPE),
    (("select", (ty("i1"), A, A), {}), SHAPE),
    (("select", (ty("i1", 2, 3), A, B), {}), SHAPE),
    (("cast", (ty("cf32", 2),), {"dtype": D["f32"]}), SUPPORT),
    (("stop_gradient", (tensor(INDEX, (2,)),), {}), SUPPORT),  # a dtype of another dialect
    # constant, iota, rng
    (("constant", (), {"value": Literal(ty("f32", 2), b"\0" * 4)}), "LiteralSizeMismatch"),
    (("constant", (), {"value": Literal(ty("si4", 3), b"\0" * 3)}), "LiteralSizeMismatch"),
    (("constant", (), {"value": Literal(ty("f32", 2), b"\0" * 8, splat=True)}), "LiteralSizeMismatch"),
    (("constant", (), {"value": Literal(ty("f32", N), b"\0" * 4)}), DYNAMIC),
    (("constant", (), {"value": Literal(ty("f32", -2), b"")}), NEGATIVE),
    (("iota", (), {"shape": (2, 3), "dtype": D["f32"], "axis": 2}), ATTRIBUTE),
    (("iota", (), {"shape": (), "dtype": D["f32"], "axis": 0}), ATTRIBUTE),
    (("iota", (), {"shape": (2,), "dtype": D["i1"], "axis": 0}), SUPPORT),
    (("iota", (), {"shape": (-2,), "dtype": D["f32"], "axis": 0}), NEGATIVE),
    (("rng_uniform", (), {"shape": (2,), "dtype": D["si32"]}), SUPPORT),
    (("rng_normal", (), {"shape": (-1,), "dtype": D["f32"]}), NEGATIVE),
    (("rng_uniform", (), {"shape": (2,), "dtype": D["f32"], "stream": -1}), ATTRIBUTE),
    # reductions
    (("reduce_sum", (A,), {"axes": (2,)}), ATTRIBUTE),
    (("reduce_sum", (A,), {"axes": (-3,)}), ATTRIBUTE),
    (("reduce_max", (A,), {"axes": (0, -2)}), ATTRIBUTE),
    (("reduce_sum", (A,), {"axes": (0,), "accum_dtype": D["f16"]}), ACCUM),
    (("reduce_sum", (A,), {"axes": (0,), "accum_dtype": D["si64"]}), ACCUM),
    (("reduce_sum", (ty("bf16", 2),), {"axes": (0,), "accum_dtype": D["f16"]}), ACCUM),
    (("reduce_sum", (ty("si8", 2),), {"axes": (0,), "accum_dtype": D["ui32"]}), ACCUM),
    (("reduce_sum", (ty("ui32", 2),), {"axes": (0,), "accum_dtype": D["si32"]}), ACCUM),
    (("reduce_sum", (ty("cf32", 2),), {"axes": (0,), "out_dtype": D["f32"]}), SUPPORT),
    (("argmax", (A,), {"axis": 2}), ATTRIBUTE),
    (("argmax", (S,), {"axis": 0}), ATTRIBUTE),
    (("argmax", (ty("f32", 2, 0),), {"axis": 1}), ATTRIBUTE),
    (("argmax", (A,), {"axis": 1, "output_dtype": D["si16"]}), SUPPORT),
    # dot_general
    (dot(A, A), SHAPE),
    (dot(A, H), DTYPE),
    (dot(A, B, cl=(2,)), ATTRIBUTE),
    (dot(A, B, cl=(1, 0)), ATTRIBUTE),
    (dot(A, B, cl=(1, 1), cr=(0, 0)), ATTRIBUTE),
    (dot(A, B, bl=(1,), br=(0,)), ATTRIBUTE),
    (dot(A, ty("f32", 4, 3), bl=(0,), br=(0,), cr=(1,)), SHAPE),
    (dot(A, B, bl=(0,)), ATTRIBUTE),
    (dot(ty("f32", 2, N), ty("f32", M, 2)), DYNAMIC),
    (dot(A, B, accum_dtype=D["bf16"]), ACCUM),
    (dot(ty("cf32", 2, 3), ty("cf32", 3, 2), out_dtype=D["f64"]), SUPPORT),
    # movement
    (("transpose", (A,), {"perm": (0, 0)}), ATTRIBUTE),
    (("transpose", (A,), {"perm": (0,)}), ATTRIBUTE),
    (("transpose", (A,), {"perm": (0, 2)}), ATTRIBUTE),
    (("reshape", (A,), {"new_shape": (7,)}), ATTRIBUTE),
    (("reshape", (A,), {"new_shape": (-1, -1)}), ATTRIBUTE),
    (("reshape", (A,), {"new_shape": (-1, 4)}), ATTRIBUTE),
    (("reshape", (A,), {"new_shape": (-1, 0)}), ATTRIBUTE),
    (("reshape", (A,), {"new_shape": (-2, -3)}), NEGATIVE),
    (("reshape", (ty("f32", N, 4),), {"new_shape": (N, 5)}), DYNAMIC),
    (("broadcast_to", (A,), {"result_shape": (3,)}), "BroadcastRankMismatch"),
    (("broadcast_to", (A,), {"result_shape": (2, 4)}), "BroadcastDimsInvalid"),
    (("broadcast_to", (A,), {"result_shape": (2, 1)}), "BroadcastDimsInvalid"),
    (("broadcast_to", (ty("f32", 0),), {"result_shape": (3,)}), "BroadcastDimsInvalid"),
    (("broadcast_to", (ty("f32", N),), {"result_shape": (4,)}), DYNAMIC),
    (("broadcast_to", (S,), {"result_shape": (-4,)}), NEGATIVE),
    (("broadcast_to", (S,), {"result_shape": (2**63,)}), SI64),
    (("slice", (A,), {"starts": (0, 2), "sizes": (2, 2)}), ATTRIBUTE),
    (("slice", (A,), {"starts": (0,), "sizes": (2, 2)}), ATTRIBUTE),
    (("slice", (A,), {"starts": (0, 0), "sizes": (2,)}), ATTRIBUTE),
    (("slice", (A,), {"starts": (-1, 0), "sizes": (1, 1)}), ATTRIBUTE),
    (("slice", (A,), {"starts": (0, 0), "sizes": (-1, 1)}), ATTRIBUTE),
    (("concat", ([],), {"axis": 0}), "OperandCountMismatch"),
    (("concat", ([A, B],), {"axis": 0}), SHAPE),
    (("concat", ([A, V],), {"axis": 0}), SHAPE),
    (("concat", ([A, H],), {"axis": 0}), DTYPE),
    (("concat", ([A, A],), {"axis": 2}), ATTRIBUTE),
    (("concat", ([S, S],), {"axis": 0}), ATTRIBUTE),
    (("concat", ([ty("f32", N, 2), ty("f32", M, 2)],), {"axis": 1}), DYNAMIC),
    (("concat", ([ty("f32", BIG), ty("f32", BIG)],), {"axis": 0}), SI64),
    (("pad", (A,), {"low": (0,), "high": (0, 0)}), ATTRIBUTE),
    (("pad", (A,), {"low": (0, 0), "high": (0,)}), ATTRIBUTE),
    (("pad", (A,), {"low": (0, 0), "high": (0, 0), "interior": (0,)}), ATTRIBUTE),
    (("pad", (A,), {"low": (-1, 0), "high": (0, 0)}), ATTRIBUTE),
    (("pad", (I3,), {"low": (0,), "high": (0,), "pad_value": Scalar("Float", 0.5)}), ATTRIBUTE),
    (("pad", (ty("ui8", 3),), {"low": (0,), "high": (0,), "pad_value": Scalar("Signed", -1)}), ATTRIBUTE),
    (("pad", (A,), {"low": (0, 0), "high": (0, 0), "pad_value": Scalar("Complex", 1j)}), ATTRIBUTE),
    (("tile", (A,), {"repeats": (2,)}), ATTRIBUTE),
    (("tile", (A,), {"repeats": (2, -1)}), ATTRIBUTE),
    (("tile", (ty("f32", BIG),), {"repeats": (2,)}), SI64),
    # indexing
    (("take", (A, V), {}), SUPPORT),
    (("take", (A, ty("ui32", 3)), {}), SUPPORT),
    (("take", (S, I3), {}), RANK),
    (("gather", (A, I3), {"axis": 0}), RANK),
    (("gather", (A, ty("si32", 2, 2)), {"axis": 0}), SHAPE),
    (("gather", (A, ty("si32", 2, 3)), {"axis": 2}), ATTRIBUTE),
    (("gather", (A, ty("si8", 2, 3)), {"axis": 0}), SUPPORT),
    (("gather", (ty("f32", 2, N), ty("si32", 2, 3)), {"axis": 0}), DYNAMIC),
    (("scatter_reduce", (A, ty("si32", 2, 3), V), {"axis": 0}), SHAPE),
    (("scatter_reduce", (A, ty("si32", 2, 2), ty("f32", 2, 2)), {"axis": 0}), SHAPE),
    (("scatter_reduce", (A, ty("si32", 2, 3), H), {"axis": 0}), DTYPE),
    (("scatter_reduce", (A, A, A), {"axis": 0}), SUPPORT),
    (("scatter_reduce", (A, I3, V), {"axis": 0}), RANK),
    (("scatter_reduce", (A, ty("si32", 2, 3), A), {"axis": 5}), ATTRIBUTE),
    (("scatter_reduce", (A, ty("si32", 2, 3), A), {"axis": 0, "reduce": "mul"}), ATTRIBUTE),
    (("dynamic_slice", (A, I3), {"sizes": (1, 1)}), SHAPE),
    (("dynamic_slice", (A, ty("si32", 2, 1)), {"sizes": (1, 1)}), RANK),
    (("dynamic_slice", (A, ty("f32", 2)), {"sizes": (1, 1)}), SUPPORT),
    (("dynamic_slice", (A, ty("si32", 2)), {"sizes": (3, 1)}), ATTRIBUTE),
    (("dynamic_slice", (A, ty("si32", 2)), {"sizes": (1,)}), ATTRIBUTE),
    (("dynamic_slice", (A, ty("si32", 2)), {"sizes": (1, -1)}), ATTRIBUTE),
    (("dynamic_update_slice", (A, ty("f32", 1, 1), ty("si32", 2)), {"sizes": (1, 2)}), SHAPE),
    (("dynamic_update_slice", (A, ty("f16", 1, 2), ty("si32", 2)), {"sizes": (1, 2)}), DTYPE),
    (scatter(scattered=(0, 0)), ATTRIBUTE),
    (scatter(scattered=()), ATTRIBUTE),
    (scatter(vector=3), ATTRIBUTE),
    (scatter(inserted=(1,)), ATTRIBUTE),
    (scatter(inserted=()), RANK),
    (scatter(u=ty("f32", 3)), SHAPE),
    (scatter(u=ty("f16", 2)), DTYPE),
    (scatter(i=ty("f32", 2, 1)), SUPPORT),
    (scatter(u=ty("f32", 2, 4), window=(1,), inserted=()), SHAPE),
    # windows
    (pool(window=(1,)), ATTRIBUTE),
    (pool(strides=(0, 1)), ATTRIBUTE),
    (pool(window=(0, 1)), ATTRIBUTE),
    (pool(base=(1, 0)), ATTRIBUTE),
    (pool(dilation=(0, 1)), ATTRIBUTE),
    (pool(padding=((0, 0),)), ATTRIBUTE),
    (pool(padding=((0, -1), (0, 0))), ATTRIBUTE),
    (pool(window=(3, 1)), ATTRIBUTE),
    (pool(window=(2, 2), dilation=(2, 2)), ATTRIBUTE),
    (pool(reduce="mean"), ATTRIBUTE),
    (pool(accum_dtype=D["bf16"]), ACCUM),
    (patches(ty("f32", 1, 5)), RANK),
    (patches(window=(2,)), ATTRIBUTE),
    (patches(window=(6, 2)), ATTRIBUTE),
    (patches(strides=(0, 1)), ATTRIBUTE),
    (patches(dilation=(1,)), ATTRIBUTE),
    (patches(padding=((0, 0),)), ATTRIBUTE),
    (patches(ty("si8", 1, 5, 5, 2), pad_value=Scalar("Signed", 128)), ATTRIBUTE),
    # top_k, segments, quantization, layer norm
    (("top_k", (A,), {"k": 4}), ATTRIBUTE),
    (("top_k", (A,), {"k": -1}), ATTRIBUTE),
    (("top_k", (A,), {"k": 1, "axis": 2}), ATTRIBUTE),
    (("top_k", (S,), {"k": 1}), ATTRIBUTE),
    (("top_k", (A,), {"k": 1, "indices_dtype": D["ui32"]}), SUPPORT),
    (("top_k", (ty("cf32", 3),), {"k": 1}), SUPPORT),
    (("segment_reduce", (A, I3), {"num_segments": 2}), SHAPE),
    (("segment_reduce", (A, V), {"num_segments": 2}), SUPPORT),
    (("segment_reduce", (S, I3), {"num_segments": 2}), RANK),
    (("segment_reduce", (A, ty("si32", 2, 1)), {"num_segments": 2}), RANK),
    (("segment_reduce", (A, ty("si32", 2)), {"num_segments": -1}), ATTRIBUTE),
    (("segment_reduce", (A, ty("si32", 2)), {"num_segments": 2, "kind": "min"}), ATTRIBUTE),
    (("segment_reduce", (A, ty("si32", 2)), {"num_segments": 2, "accum_dtype": D["f16"]}), ACCUM),
    (("quantize", (I3,), {"output_dtype": D["si8"]}), SUPPORT),
    (("quantize", (A,), {"output_dtype": D["i1"]}), SUPPORT),
    (("quantize", (A,), {"output_dtype": D["si8"], "axis": 2}), ATTRIBUTE),
    (("requantize", (A,), {"output_dtype": D["si8"]}), SUPPORT),
    (("requantize", (I3,), {"output_dtype": D["f32"]}), SUPPORT),
    (("dequantize", (A,), {}), SUPPORT),
    (("dequantize", (I3,), {"output_dtype": D["si8"]}), SUPPORT),
    (("dequantize", (I3,), {"axis": 1}), ATTRIBUTE),
    (("layer_norm", (A, V, ty("f32", 2)), {"epsilon": 0.1}), SHAPE),
    (("layer_norm", (A, V, ty("f16", 3)), {"epsilon": 0.1}), DTYPE),
    (("layer_norm", (A, A, V), {"epsilon": 0.1}), RANK),
    (("layer_norm", (A, V, V), {"epsilon": 0.1, "feature_axis": 2}), ATTRIBUTE),
    (("layer_norm", (A, V, V), {"epsilon": -0.1}), ATTRIBUTE),
    (("layer_norm", (A, V, V), {"epsilon": float("nan")}), ATTRIBUTE),
]


@pytest.mark.parametrize(("case", "want"), REFUSED, ids=lambda c: c if isinstance(c, str) else c[0])
def test_constraints(case, want):
    name, types, attrs = case
    assert code(name, *types, **attrs) == want


def put(text):
    """The extent that a text says."""
    return to_dim(extents.parse(text))


def inferred(name, *types, **attrs):
    return program(name, types, attrs).main.results[0].type


X = ty("f32", N, 4)


def test_symbols_that_agree_are_carried_through():
    assert inferred("add", X, X) is X
    assert inferred("transpose", X, perm=(1, 0)) is ty("f32", 4, N)
    assert inferred("reduce_sum", X, axes=(1,), keepdims=True) is ty("f32", N, 1)
    assert inferred("broadcast_to", S, result_shape=(N, M)) is ty("f32", N, M)
    assert inferred("broadcast_to", ty("f32", 1, N), result_shape=(M, N)) is ty("f32", M, N)
    assert inferred("dot_general", X, ty("f32", N, M), contract_lhs=(0,), contract_rhs=(0,)) is ty("f32", 4, M)
    assert inferred("take", X, ty("si32", M)) is ty("f32", M, 4)
    assert inferred("gather", X, ty("si32", M, 4), axis=0) is ty("f32", M, 4)
    assert inferred("iota", shape=(N, 2), dtype=D["si32"], axis=0) is ty("si32", N, 2)
    assert inferred("slice", X, starts=(2, 0), sizes=(3, 4)) is ty("f32", 3, 4)
    assert inferred("top_k", X, k=9, axis=0).elements[0] is ty("f32", 9, 4)


def test_extents_are_expressions():
    assert inferred("concat", [X, X], axis=0) is ty("f32", put("2 * ?N"), 4)
    assert inferred("concat", [X, ty("f32", 0, 4)], axis=0) is X
    assert inferred("concat", [X, X], axis=1) is ty("f32", N, 8)
    assert inferred("pad", X, low=(1, 1), high=(0, 0)) is ty("f32", put("?N + 1"), 5)
    assert inferred("pad", X, low=(0, 1), high=(0, 0)) is ty("f32", N, 5)
    assert inferred("tile", X, repeats=(2, 2)) is ty("f32", put("2 * ?N"), 8)
    assert inferred("tile", X, repeats=(1, 2)) is ty("f32", N, 8)
    assert inferred("tile", X, repeats=(0, 1)) is ty("f32", 0, 4)
    image = ty("f32", N, 8, M, 3)
    name, _, attrs = patches()
    assert inferred(name, image, **attrs) is ty("f32", N, 7, put("?M - 1"), 12)
    name, _, attrs = pool(image, (1, 2, 2, 1), (1, 2, 2, 1), ((0, 0),) * 4, (1,) * 4, (1,) * 4)
    assert inferred(name, image, **attrs) is ty("f32", N, 4, put("?M floordiv 2"), 3)
    assert code("concat", [X, X], axis=0, result=ty("f32", M, 4)) is None
    assert code("concat", [X, X], axis=0, result=ty("f32", 6, 4)) is None


@pytest.mark.parametrize(
    ("shape", "new_shape", "result"),
    [
        ((2, 3), (3, -1), (3, 2)),
        ((0, 3), (-1, 3), (0, 3)),
        ((), (-1,), (1,)),
        ((N, 4), (-1, 4), (N, 4)),
        ((N, 4), (2, 2, -1), (2, 2, N)),
        ((N, 4), (-1,), ("4 * ?N",)),
        ((N, 4), (N, -1), (N, 4)),
        ((N, 4), (N, 2, -1), (N, 2, 2)),
        ((N, M), (M, N), (M, N)),
        ((N, 4), (M, 2), (M, 2)),
        ((N, M), (-1, M), (N, M)),
        ((N, 4), (8, -1), (8, "?N floordiv 2")),
        ((6,), (N, 3), (N, 3)),
    ],
    ids=str,
)
def test_reshape(shape, new_shape, result):
    assert inferred("reshape", ty("f32", *shape), new_shape=new_shape) is ty(
        "f32", *(put(d) if isinstance(d, str) else d for d in result)
    )


def specialized(p, **numbers):
    diagnostics = Diagnostics()
    assert verify(p, diagnostics), [d.message for d in diagnostics]
    specialize(p, numbers)
    return p.main.results[0].type


def test_reshape_solves_its_symbol():
    p = program("reshape", [ty("f32", 6, 4)], {"new_shape": (M, 3)})
    assert specialized(p) is ty("f32", 8, 3)
    p = program("reshape", [ty("f32", 3, 12)], {"new_shape": (M, M)})
    assert specialized(p) is ty("f32", 6, 6)
    for new_shape in ((M, 5), (M, M)):
        with pytest.raises(Violation) as info:
            specialized(program("reshape", [ty("f32", 6, 4)], {"new_shape": new_shape}))
        assert info.value.code == DYNAMIC


def test_what_symbols_hid_is_found_once_they_are_numbers():
    cases = [
        ("slice", X, {"starts": (2, 0), "sizes": (3, 4)}, ATTRIBUTE),
        ("dynamic_slice", X, {"sizes": (3, 4)}, ATTRIBUTE),
        ("top_k", X, {"k": 3, "axis": 0}, ATTRIBUTE),
        ("reshape", X, {"new_shape": (8, -1)}, ATTRIBUTE),
        ("argmax", ty("f32", 3, N), {"axis": 1}, None),
    ]
    for name, t, attrs, want in cases:
        more = [ty("si32", 2)] if name == "dynamic_slice" else []
        p = program(name, [t, *more], attrs)
        found = None
        try:
            specialized(p, N=2 if name != "reshape" else 3)
        except Violation as violation:
            found = violation.code
        assert found == want, name


def test_a_declared_symbol_may_name_a_computed_extent():
    assert code("concat", [A, A], axis=0, result=ty("f32", M, 3)) is None
    assert code("pad", A, low=(1, 1), high=(0, 0), result=ty("f32", 3, M)) is None
    assert code("tile", A, repeats=(2, 1), result=ty("f32", M, 3)) is None
    assert code("reshape", A, new_shape=(-1,), result=ty("f32", M)) is None
    assert code("reshape", A, new_shape=(-1,), result=ty("f32", 7)) == "ResultTypeMismatch"
    assert code("concat", [A, A], axis=0, result=ty("f16", M, 3)) == "ResultTypeMismatch"
    assert code("transpose", A, perm=(1, 0), result=ty("f32", M, 2)) == DYNAMIC
    p = program("concat", [A, A], {"axis": 0}, result=ty("f32", M, 3))
    assert specialized(p) is ty("f32", 4, 3)


def test_declared_extents_clash_with_inferred_ones():
    assert code("concat", [A, A], axis=0, result=ty("f32", 5, 3)) == "ResultTypeMismatch"
    assert code("add", X, X, result=ty("f32", M, 4)) == DYNAMIC
    assert code("reduce_sum", A, axes=(0,), result=ty("f16", 3)) == "ResultTypeMismatch"


def test_negative_axes_everywhere():
    assert inferred("reduce_sum", A, axes=(-1,)) is ty("f32", 2)
    assert inferred("concat", [A, A], axis=-1) is ty("f32", 2, 6)
    assert inferred("iota", shape=(2, 3), dtype=D["f32"], axis=-1) is A
    assert inferred("argmax", A, axis=-2) is I3
    assert inferred("dot_general", A, A, contract_lhs=(-1,), contract_rhs=(-1,)) is ty("f32", 2, 2)
    assert inferred("top_k", A, k=1, axis=-2).elements[1] is ty("si32", 1, 3)
    assert inferred("quantize", A, output_dtype=D["si8"], axis=-1) is ty("si8", 2, 3)
    assert inferred("layer_norm", A, V, V, epsilon=0.0, feature_axis=-1) is A


def test_defaults_follow_from_other_attributes():
    op = program("extract_patches", [ty("si8", 1, 5, 5, 2)], {"window": (2, 2)}).main.body[0]
    assert op.attr("strides") == (1, 1) and op.attr("padding") == ((0, 0), (0, 0)) and op.attr("pad_value") == Scalar("Signed", 0)
    op = program("pad", [ty("cf32", 1)], {"low": (1,), "high": (0,)}).main.body[0]
    assert op.attr("interior") == (0,) and op.attr("pad_value") == Scalar("Complex", 0j)


def test_scalars_are_equal_by_kind_and_bits():
    nan = float("nan")
    assert Scalar("Float", nan) == Scalar("Float", nan) and hash(Scalar("Float", nan)) == hash(Scalar("Float", nan))
    assert Scalar("Float", 0.0) != Scalar("Float", -0.0)
    assert Scalar("Signed", 0) != Scalar("Unsigned", 0) and Scalar("I1", True) != Scalar("Signed", 1)
    assert Scalar("Complex", complex(0.0, -0.0)) != Scalar("Complex", 0j)


@pytest.mark.parametrize(
    ("types", "code"),
    [
        ("(tensor<f32, ?N>, tensor<si32, ?N>)", "DynamicDimensionMismatch"),
        ("(tensor<f32, ?K>, tensor<si32, 3>)", "DynamicDimensionMismatch"),
        ("(tensor<f32, 2>, tensor<si32, 2>)", "ResultTypeMismatch"),
        ("(tensor<f32, ?N>, tensor<si64, 3>)", "ResultTypeMismatch"),
    ],
)
def test_extents_in_tuples_differ_as_those_of_tensors_do(types: str, code: str) -> None:
    program, diagnostics = ptir_texts.read(f"func @f(%x: tensor<f32, ?N>) -> () {{\n%t = top_k(%x) k[3] -> {types}\nreturn\n}}")
    verify(program, diagnostics)
    assert [d.code for d in diagnostics] == [code]
