"""MIND to Tiny and Tiny to MIND, through PTIR: each row of the legality tables, on both sides of its line."""

from __future__ import annotations

import json

import pytest

from ptir_tools.core.ir import result_names
from tests.convert.legality_rows import Row, check_row, ids, mind
from tests.convert.translations import agree, parse, translated
from tests.tiny.graphs import graph, node, sample, source

X4 = "f32[2, 5, 6, 3]"
MIND_TO_TINY: list[Row] = [
    ("N", "f64", mind("Neg (%x)", "f32[3]"), mind("Neg (%x)", "f64[3]")),
    ("N", "i64", mind("Neg (%x)", "i32[3]"), mind("Neg (%x)", "i64[3]")),
    ("C", "ConstTensor", mind("ConstTensor {dtype=i32, shape=(2,), value=[1, 2]}"),
     mind("ConstTensor {dtype=i32, shape=(2,), value=[1, 2]}")),
    ("Y", "ConstF32 of an operand", mind("Mul (%x, %k)", more="%k = ConstF32 {value=0.5}\n"), None),
    *(("=", op, mind(f"{op} (%x, %y)", "f32[2, 3]", "f32[2, 3]"), None) for op in ("Add", "Sub", "Mul")),
    ("Y", "Add that broadcasts", mind("Add (%x, %y)", "f32[2, 1, 3]", "f32[4, 1]"), None),
    ("=", "Sum", mind("Sum (%x) {axes=[1], keepdims=false}"), None),
    ("Y", "Sum that keeps", mind("Sum (%x) {axes=[1], keepdims=true}"), None),
    ("Y", "Sum over []", mind("Sum (%x) {axes=[], keepdims=false}"), None),
    ("Y", "Mean", mind("Mean (%x) {axes=[0], keepdims=false}"), None),
    ("Y", "Mean of i32", mind("Mean (%x) {axes=[0], keepdims=false}", "i32[2, 3]"),
     mind("Mean (%x) {axes=[0], keepdims=false}", "i64[2, 3]")),
    ("C", "Gather by i64", mind("Gather (%x, %y)", "f32[5, 2]", "i64[4]"), None),
    ("=", "Reshape", mind("Reshape (%x) {new_shape=[3, 2]}"), None),
    ("=", "Transpose", mind("Transpose (%x) {permutation=[1, 0]}"), None),
    ("Y", "ExpandDims", mind("ExpandDims (%x) {axes=[1]}"), None),
    ("Y", "Squeeze", mind("Squeeze (%x) {axes=[0]}", "f32[1, 3]"), None),
    ("Y", "Slice", mind("Slice (%x) {ends=[2, 3], starts=[0, 0], steps=[1, 2]}"), None),
    ("Y", "Index", mind("Index (%x) {indices=[1, 2]}"), None),
    ("Y", "Dot", mind("Dot (%x, %y)", "f32[3, 5]", "f32[5]"), mind("Dot (%x, %y)", "f64[3, 5]", "f64[5]")),
    ("Y", "MatMul", mind("MatMul (%x, %y)", "f32[2, 3, 5]", "f32[2, 5, 4]"), None),
    ("Y", "Conv2d", mind("Conv2d (%x, %y) {padding=Same, strides=[2, 1]}", X4, "f32[2, 3, 3, 4]"), None),
    ("=", "Relu", mind("Relu (%x)"), None),
    ("=", "Neg", mind("Neg (%x)"), None),
    ("C", "Exp", mind("Exp (%x)"), mind("Exp (%x)", "f64[2]")),
    ("C", "Log", mind("Log (%x)"), mind("Log (%x)", "f64[2]")),
    ("C", "Gather", mind("Gather (%x, %y)", "f32[5, 2]", "i32[2, 3]"), mind("Gather (%x, %y)", "f32[5, 2]", "i64[2, 3]")),
]  # fmt: skip


@pytest.mark.parametrize("row", MIND_TO_TINY, ids=ids(MIND_TO_TINY))
def test_mind_to_tiny(row: Row) -> None:
    check_row(row, "mind", "tiny")


X, Z = source([3, 4]), source([3, 4], id="z")


def one(uop: str, *src: object, inputs: tuple = (X,), **arg: object) -> str:
    """A graph of these inputs and one node, y."""
    return graph(*inputs, node(uop, *src, **arg))


def view(*entries: object, shape: list, guard: list | None = None) -> str:
    return one("VIEW", result_shape=shape, index_map={"map": list(entries)} | ({"guard": guard} if guard else {}))


TINY_TO_MIND: list[Row] = [
    *(("N", dtype, one("ADD", "x", "x", inputs=(source([3], known),)), one("WHERE", "x", "x", "x", inputs=(source([3], dtype),)))
      for dtype, known in (("fp16", "fp32"), ("bf16", "fp32"), ("bool", "i32")) if dtype == "bool"),
    *(("N", dtype, one("NEG", inputs=(source([3]),)), one("NEG", inputs=(source([3], dtype),))) for dtype in ("fp16", "bf16")),
    ("N", "a symbol", one("NEG"), one("NEG", inputs=(source(["N"]),))),
    ("=", "RESHAPE", one("RESHAPE", result_shape=[2, 6]), None),
    ("=", "PERMUTE", one("PERMUTE", perm=[1, 0]), None),
    ("C", "EXPAND", one("EXPAND", result_shape=[2, 3, 4], broadcast_dimensions=[1, 2]), None),
    ("Y", "EXPAND of an operand of ADD",
     graph(X, source([4], id="w"), node("EXPAND", "w", id="e", result_shape=[3, 4]), node("ADD", "x", "e")), None),
    ("=", "SHRINK", one("SHRINK", lo=[0, 1], hi=[3, 3]), one("SHRINK", inputs=(source([3, 4], "fp16"),), lo=[0, 1], hi=[3, 3])),
    ("Y", "SHRINK by a step", one("SHRINK", lo=[0, 1], hi=[3, 4], step=[2, 2]), None),
    *(("=", uop, one(uop, "x", "z", inputs=(X, Z)), None) for uop in ("ADD", "SUB", "MUL")),
    ("=", "NEG", one("NEG"), None),
    ("=", "RELU", one("RELU"), one("RELU", inputs=(source([3, 4], "fp16"),))),
    ("Y", "RELU of i32", one("RELU", inputs=(source([3, 4], "i32"),)), None),
    ("=", "REDUCE SUM", one("REDUCE", op="SUM", axes=[1], dtype="fp32"), one("REDUCE", op="SUM", axes=[1], dtype="fp16")),
    ("Y", "REDUCE SUM of i32", one("REDUCE", inputs=(source([3], "i32"),), op="SUM", axes=[0], dtype="i32"),
     one("REDUCE", inputs=(source([3], "fp32"),), op="SUM", axes=[0], dtype="i32")),
    ("Y", "REDUCE from init", one("REDUCE", op="SUM", axes=[0, 1], dtype="fp32", init=3), None),
    *(("Y", f"REDUCE {op}", one("REDUCE", op=op, axes=[1], dtype="fp32"),
       one("REDUCE", inputs=(source([3, 4], "fp16"),), op=op, axes=[1], dtype="fp32")) for op in ("MAX", "MIN")),
    *(("Y", f"REDUCE {op} of i32", one("REDUCE", inputs=(source([3, 4], "i32"),), op=op, axes=[1], dtype="i32"), None)
      for op in ("MAX", "MIN")),
    ("Y", "an immediate", one("MUL", "x", 0.3), None),
    ("C", "FDIV by a power of two", one("FDIV", "x", 4), None),
    ("C", "FDIV by a number", one("FDIV", "x", 3), None),
    ("L", "FDIV", one("FDIV", "x", "z", inputs=(X, Z)), None),
    ("Y", "MAX with 0", one("MAX", "x", 0), None),
    ("Y", "MAX of i32", one("MAX", "x", 0, inputs=(source([3, 4], "i32"),)), None),
    ("Y", "MIN", one("MIN", "x", "z", inputs=(X, Z)), None),
    ("Y", "WHERE of what is cast", graph(X, node("CAST", "x", id="b", to="bool"), node("WHERE", "b", "x", 2)), None),
    ("C", "WHERE", one("WHERE", "b", "x", 0, inputs=(X, source([3, 4], "bool", "b"))), None),
    ("C", "EXP2", one("EXP2"), one("EXP2", inputs=(source([3], "fp16"),))),
    ("C", "EXP2 as e to the power", graph(X, node("MUL", "x", 1.4426950408889634, id="m"), node("EXP2", "m")), None),
    ("C", "RSQRT", graph(X, node("EXP2", id="e"), node("RSQRT", "e")), None),
    ("Y", "PAD", one("PAD", pad=[[1, 0], [0, 2]], value=2.5), one("PAD", inputs=(source([3, 4], "fp16"),), pad=[[1, 0], [0, 0]])),
    ("Y", "FLIP", one("FLIP", axes=[0]), None),
    ("Y", "VIEW", view("i0", "i0", shape=[3]), None),
    ("Y", "POOL", one("POOL", kernel=[2]), None),
    ("N", "CAST", None, one("CAST", to="i32")),
]  # fmt: skip


@pytest.mark.parametrize("row", TINY_TO_MIND, ids=ids(TINY_TO_MIND))
def test_tiny_to_mind(row: Row) -> None:
    check_row(row, "tiny", "mind")


def bound(name: str) -> str:
    """A graph of the specification in fp32."""
    return sample(name).replace("fp16", "fp32")


def test_the_graphs_of_the_specification_are_modules() -> None:
    for name, dims in {
        "seed_5_1_gemm": {"M": 2, "N": 3, "K": 4},
        "seed_5_3_attention": {"B": 1, "H": 2, "M": 2, "N": 3, "D": 4},
    }.items():
        before = graph_with_dims(bound(name), **dims)
        there = translated(before, "mind")
        assert there.program is not None, there.errors
        agree(before, there.program, {})


def graph_with_dims(text: str, **dims: int):
    """The program of a graph whose symbols have these numbers."""
    body = text.rstrip().removesuffix("}")
    listed = ", ".join(f'"{name}": {n}' for name, n in dims.items())
    return parse(f'{body}, "dims": {{{listed}}}}}', "tiny")


def test_a_refused_input_is_shown_where_it_stands() -> None:
    found = translated(parse(one("NEG", inputs=(X, source([2], "fp16", "w"))).replace('"y"', '"w0"'), "tiny"), "mind")
    (error,) = found.diagnostics
    assert error.span is not None and error.source is not None
    assert '"tensor_id": "w"' in error.source.text[slice(*error.span)]
    (error,) = translated(parse(mind("Neg (%x)", "f32[2]", "f64[2]"), "mind"), "tiny").diagnostics
    assert error.where[1:] == (2, 13)


@pytest.mark.parametrize("target", ["mind", "tiny", "pto"])
def test_results_keep_their_names(target: str) -> None:
    """A result that the program calls otherwise than its value; and a name that another value has is left to that one."""
    head = "func @main(%x: tensor<f32, 8x32>) -> tensor<f32, 8x32> {\n%y = neg(%x) -> tensor<f32, 8x32>\n"
    more = "%z = neg(%y) -> tensor<f32, 8x32>\n%w = add(%z, %y) -> tensor<f32, 8x32>\n"
    for label, wanted in (("out", "out"), ("y", "w")):
        there = translated(parse(f"{head}{more}return %w as {label}\n}}\n", "ptir"), target).program
        assert there is not None
        main = there.main
        found = main.params[-1].name if target == "pto" else result_names(main)[0]
        assert found == (label if target == "pto" else wanted)


def test_names_that_ptir_cannot_spell_are_labels() -> None:
    x = {"id": "x", "uop": "INPUT", "arg": {"tensor_id": "x", "dtype": "fp32", "shape": [2]}}
    before = json.dumps({"uops": [x, {"id": "y-1", "uop": "NEG", "src": ["x"]}]})
    there = translated(parse(before, "tiny"), "ptir").program
    assert there is not None and result_names(there.main) == ["y-1"]


MEAN = "%0 = Input {name=x} : tensor<f32[3, 5, 6]>\n%1 = Mean (%0) {axes=AXES, keepdims=KEEP}\noutputs: %1\n"


@pytest.mark.parametrize("axes", ["[1]", "[0, 2]", "[]"])
@pytest.mark.parametrize("keep", ["true", "false"])
def test_a_mean_comes_back(axes: str, keep: str) -> None:
    before = parse(MEAN.replace("AXES", axes).replace("KEEP", keep), "mind")
    there = translated(before, "tiny")
    assert there.program is not None
    back = translated(there.program, "mind")
    assert back.program is not None, back.errors
    assert [op.defn.short for op in back.program.main.body][:1] == ["Mean"]
    agree(before, back.program, {})


@pytest.mark.parametrize("filter", ["%w", "%k"])
def test_a_convolution_by_a_parameter(filter: str) -> None:
    """The filter as a matrix, a parameter or computed."""
    text = f"""func @f(%x: tensor<f32, 2x8x8x3>, %w: tensor<f32, 27x4>) -> tensor<f32, 2x4x4x4> {{
      %k = neg(%w) -> tensor<f32, 27x4>
      %p = extract_patches(%x) window[3, 3] strides[2, 2] padding[[0, 1], [1, 0]] -> tensor<f32, 2x4x4x27>
      %y = dot_general(%p, {filter}) contract_lhs[3] contract_rhs[0] -> tensor<f32, 2x4x4x4>
      return %y
    }}
    """
    before = parse(text, "ptir")
    there = translated(before, "mind")
    assert there.program is not None, there.errors
    assert there.program.main.body[-1].defn.short == "Conv2d"
    agree(before, there.program, {})


@pytest.mark.parametrize("op", ["tanh", "exp", "neg"])
@pytest.mark.parametrize("dtype", ["cf32", "fp8_e5m2", "f64"])
@pytest.mark.parametrize("target", ["mind", "tiny", "pto"])
def test_other_dtypes_are_refused(op: str, dtype: str, target: str) -> None:
    t = f"tensor<{dtype}, 8>"
    there = translated(parse(f"func @f(%p: {t}) -> {t} {{\n%v = {op}(%p) -> {t}\nreturn %v\n}}\n", "ptir"), target)
    assert there.program is not None or {code for code, _ in there.errors} == {"NotTranslatable"}
