"""PTIR to Tiny with symbolic extents: each op keeps them, and both sides agree for sizes that the check chooses."""

from __future__ import annotations

import pytest

from ptir_tools.engines.compare import check, common_sizes, small_sizes
from ptir_tools.passes import PassContext, run_pipeline
from tests.convert.legality_rows import ptir
from tests.convert.translations import agree, parse, translated
from tests.tiny.graphs import graph, node, source

WINDOW = "window_dims[2, 1] strides[2, 1] padding[[0, 1], [0, 0]] base_dilation[1, 1] window_dilation[1, 1]"
SUM = "%s = reduce_sum(%x) axes[1] -> tensor<f32, ?N>\n  "
TWO = "%k = broadcast_to(dense<2.0> : tensor<f32>) result_shape[?N] -> tensor<f32, ?N>\n  "
CASES = {
    "concat": ptir("concat(%x, %y) axis[0]", "f32, ?Kx3", "f32, ?Nx3", "f32, ?Mx3"),
    "concat of three": ptir("concat(%x, %x, %y) axis[1]", "f32, 2x?K", "f32, 2x?N", "f32, 2x3"),
    "pad": ptir("pad(%x) low[1, 0] high[0, 2]", "f32, ?Kx5", "f32, ?Nx3"),
    "pad between": ptir("pad(%x) low[1, 0] high[0, 2] interior[2, 0]", "f32, ?Kx5", "f32, ?Nx3"),
    "tile": ptir("tile(%x) repeats[3, 1]", "f32, ?Kx3", "f32, ?Nx3"),
    "pad of both between": ptir("pad(%x) low[1, 0] high[0, 2] interior[2, 1]", "f32, ?Kx?L", "f32, ?Nx?M"),
    "patches of both": ptir("extract_patches(%x) window[2, 2] strides[2, 1]", "f32, 1x?Kx?Lx?D", "f32, 1x?Nx?Mx?C"),
    "reduce_window": ptir(f"reduce_window(%x) {WINDOW}", "f32, ?Kx3", "f32, ?Nx3"),
    "extract_patches": ptir(
        "extract_patches(%x) window[2, 2] strides[2, 1] padding[[1, 0], [0, 0]]", "f32, 1x?Kx?Lx?D", "f32, 1x?Nx?Mx?C"
    ),
    "dot_general": ptir("dot_general(%x, %y) contract_lhs[1] contract_rhs[0]", "f32, ?Nx?M", "f32, ?Nx?K", "f32, ?Kx?M"),
    "layer_norm": ptir("layer_norm(%x, %y, %y) epsilon[1e-05]", "f32, ?Nx?K", "f32, ?Nx?K", "f32, ?K"),
    "reshape": ptir("reshape(%x) new_shape[?M]", "f32, ?M", "f32, ?Nx3"),
    "reduce_sum": ptir("exp(%s)", "f32, ?N", "f32, ?Nx3", more=SUM),
    "broadcast_to": ptir("broadcast_to(%x) result_shape[?M, ?N]", "f32, ?Mx?N", "f32, ?N", "f32, ?M"),
    "slice": ptir("slice(%x) starts[1, 0] sizes[2, 2]", "f32, 2x2", "f32, ?Nx3"),
    "scattered windows": ptir(
        "scatter_add(%x, %y, %z) update_window_dims[0, 1] inserted_window_dims[1, 3] scatter_dims_to_operand_dims[0]",
        "f32, 2x4x1x?N",
        "f32, 2x4x1x?N",
        "si32",
        "f32, 2x1",
    ),
    "iota": ptir("iota() axis[1]", "si32, 2x?N", "f32, ?N"),
    "an immediate": ptir("mul(%x, %k)", "f32, ?N", "f32, ?N", more=TWO),
}


@pytest.mark.parametrize("name", CASES)
def test_symbols_are_kept(name: str) -> None:
    before = parse(CASES[name], "ptir")
    there = translated(before, "tiny")
    assert there.program is not None, there.errors
    agree(before, there.program, there.constants)
    back = translated(there.program, "ptir", constants=there.constants)
    assert back.program is not None, back.errors
    agree(before, back.program, {})


@pytest.mark.parametrize(
    "text",
    [ptir("tile(%x) repeats[2, 3]", "f32, ?Kx?L", "f32, ?Nx?M"), ptir("tile(%x) repeats[0, 3]", "f32, 0x?L", "f32, 2x?M")],
)
def test_several_new_extents_are_not_guessed(text: str) -> None:
    """What tiles both axes says what each new extent is, and no rule merges that away; nor one next to an extent of 0."""
    before = parse(text, "ptir")
    there = translated(before, "tiny")
    assert there.program is not None, there.errors
    agree(before, there.program, there.constants)
    for passes in ("canonicalize", "simplify"):
        run_pipeline(there.program, passes, PassContext())
        agree(before, there.program, there.constants)


def test_sizes_are_those_of_the_inputs_and_fit() -> None:
    """What follows from them is not chosen; a window of two rows from row 1 needs three."""
    assert small_sizes(parse(CASES["concat"], "ptir"), {}) == {"N": 2, "M": 3}
    assert small_sizes(parse(CASES["concat"], "ptir"), {"N": 7}) == {"M": 2}
    assert small_sizes(parse(CASES["slice"], "ptir"), {})["N"] >= 3


def test_sizes_follow_from_each_other() -> None:
    """Four inputs name what follows from two: no draw of four numbers would come upon it."""
    taken = "%p: tensor<ui32, 1x?Nx1x?B>, %q: tensor<bf16, 1x?Dx1x?E>"
    made = "extract_patches(%p) window[3, 1] strides[3, 1] padding[[1, 1], [0, 0]]"
    text = f"func @f({taken}) -> tensor<ui32, 1x?Dx1x?E> {{\n  %v = {made} -> tensor<ui32, 1x?Dx1x?E>\n  return %v\n}}\n"
    found = small_sizes(parse(text, "ptir"), {})
    assert (found["D"], found["E"]) == ((found["N"] - 1) // 3 + 1, 3 * found["B"])
    found = small_sizes(parse(text, "ptir"), {"B": 2})
    assert (found["D"], found["E"]) == ((found["N"] - 1) // 3 + 1, 6)


def test_a_name_that_is_an_expression_elsewhere_has_its_value() -> None:
    """`2*M` is just a name in PTIR, and twice M in Tiny, which holds its inputs to it."""
    x, y, w = (f"tensor<f32, {d}>" for d in ("?M", '?"2*M"', '?"M//N"'))
    ops = f"%a = neg(%x) -> {x}\n  %b = neg(%y) -> {y}\n  %c = neg(%w) -> {w}"
    before = parse(f"func @f(%x: {x}, %y: {y}, %w: {w}) -> ({x}, {y}, {w}) {{\n  {ops}\n  return %a, %b, %c\n}}\n", "ptir")
    after = translated(before, "tiny").program
    assert after is not None
    found = common_sizes(before, after, {})
    assert found["2*M"] == 2 * found["M"]
    assert common_sizes(before, after, {"M": 7})["2*M"] == 14
    assert not check(before, after).diverged
    assert not check(before, before).diverged


@pytest.mark.parametrize("name", ["concat", "concat of three"])
def test_a_concat_of_symbols_comes_back(name: str) -> None:
    before = parse(CASES[name], "ptir")
    there = translated(before, "tiny")
    assert there.program is not None
    back = translated(there.program, "ptir", constants=there.constants)
    assert back.program is not None, back.errors
    assert "concat" in {op.defn.short for op in back.program.main.body}
    agree(before, back.program, back.constants)


@pytest.mark.parametrize("kind", ["SUM", "MAX"])
def test_a_pool_of_symbols_is_a_window(kind: str) -> None:
    """Also next to padding, along the last of the axes."""
    nodes = [
        node("PAD", "x", id="p", pad=[[0, 0], [0, 0], [1, 1], [0, 2]], value=0 if kind == "SUM" else "-inf"),
        node("POOL", "p", id="q", kernel=[3, 2], stride=[2, 3], dilation=[1, 2]),
        node("REDUCE", "q", id="r", op=kind, axes=[4, 5], dtype="fp32"),
    ]
    before = parse(graph(source(["B", 2, "H", 9]), *nodes), "tiny")
    there = translated(before, "ptir")
    assert there.program is not None, there.errors
    (op,) = there.program.main.body
    assert op.defn.short == "reduce_window" and op.attr("padding") == ((0, 0), (0, 0), (1, 1), (0, 2))
    agree(before, there.program, there.constants)
