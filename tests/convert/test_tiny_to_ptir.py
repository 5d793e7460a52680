"""Tiny to PTIR, proven by running both sides; the passes of Tiny."""

import json

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import ptir_tools
from ptir_tools.convert import translate
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Program
from ptir_tools.core.verify import verify
from ptir_tools.passes import PassContext, run_pipeline
from tests.tiny.graphs import CONV, SAMPLES, SIZES, good, graph, inputs_of, node, printed, random_text, read, run, sample, source


def to_ptir(program: Program) -> Program:
    """The translation, verified."""
    diagnostics = Diagnostics(program.source)
    after = translate(program, "ptir", diagnostics)
    assert after is not None and not diagnostics.errors, [(d.code, d.message) for d in diagnostics]
    assert verify(after, diagnostics), [d.message for d in diagnostics]
    return after


def refusals(text: str) -> list[str]:
    """The codes with which a translation is refused."""
    diagnostics = Diagnostics()
    assert translate(good(text), "ptir", diagnostics) is None
    return [d.code for d in diagnostics]


def agree(before: Program, after: Program, inputs: list, exact: bool = True) -> None:
    """Equal dtypes, shapes and elements; EXP2 in fp32 by way of exp may differ by its roundings unless `exact`."""
    with np.errstate(all="ignore"):
        for x, y in zip(run(before, inputs), run(after, inputs), strict=True):
            assert x.dtype == y.dtype and x.shape == y.shape
            a, b = x.astype(np.float64), y.astype(np.float64)
            np.testing.assert_array_equal(a, b) if exact else np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@given(st.integers(0, 2**32))
@example(215096)
@settings(max_examples=150, deadline=None)
def test_random_graphs_agree(seed: int) -> None:
    before = good(random_text(seed))
    after = to_ptir(before)
    contracted = any(op.defn.short == "dot_general" for op in after.main.body)  # whose products are not rounded
    begun = any(op.defn.short == "REDUCE" and op.attr("init") is not None for op in before.main.body)  # with a sum of their own
    agree(before, after, inputs_of(before, seed, special=True), exact=not (contracted or begun))


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.stem)
def test_samples_agree(path) -> None:
    text = path.read_text("utf-8")
    before, diagnostics = read(text, bind=CONV if "conv2d" in path.stem else SIZES)
    if before is None or diagnostics.errors:
        return
    agree(before, to_ptir(before), inputs_of(before), exact=False)


@pytest.mark.parametrize("name", ["seed_5_1_gemm", "05_attention_full", "10_where_mask", "17_attention_scores_fixed"])
def test_symbols_stay_symbols(name: str) -> None:
    before = good(sample(name))
    after = to_ptir(before)
    static = good(sample(name), bind=SIZES)
    inputs = inputs_of(static)
    for x, y in zip(run(static, inputs), run(after, inputs, dict(SIZES)), strict=True):
        np.testing.assert_allclose(x.astype(float), y.astype(float), rtol=1e-5, atol=1e-6)
    assert "?M" in " ".join(str(op.result.type) for op in after.main.body)


def test_attention_is_attention() -> None:
    program = good(sample("05_attention_full"), bind=SIZES)
    q, k, v = inputs_of(program)
    scores = np.einsum("bhmd,bhnd->bhmn", *(x.astype(np.float64) for x in (q, k))) * 8**-0.5
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = np.einsum("bhmn,bhnd->bhmd", weights / weights.sum(-1, keepdims=True), v.astype(np.float64))
    for found in (run(program, [q, k, v])[0], run(to_ptir(program), [q, k, v])[0]):
        np.testing.assert_allclose(found.astype(np.float64), expected, rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize("operands", [("n1", "n2"), ("n2", "n1"), ("n1", "n1")])
def test_a_sum_with_one_pad_is_a_sum(operands: tuple[str, str]) -> None:
    """Two pads by zeros that fill each other's gap are a concatenation; one is not, nor is one twice."""
    x, y = source([2], id="n0"), source([4], id="n2")
    after = to_ptir(good(graph(x, y, node("PAD", "n0", id="n1", pad=[[0, 2]]), node("ADD", *operands))))
    found = ptir_tools.run(after, [np.float32([1, 2]), np.float32([3, 4, 5, 6])])
    expected = [2, 4, 0, 0] if "n2" not in operands else [4, 6, 5, 6]
    np.testing.assert_array_equal(next(iter(found.values())), np.float32(expected))


@pytest.mark.parametrize("values", [(0.0, 1.0), (1.0, 0.0), (2.0, 3.0)])
def test_a_sum_of_pads_by_other_values_is_a_sum(values: tuple[float, float]) -> None:
    pads = [
        node("PAD", f"n{i}", id=f"p{i}", pad=pad, value=v) for i, pad, v in zip((0, 1), ([[0, 2]], [[2, 0]]), values, strict=True)
    ]
    after = to_ptir(good(graph(source([2], id="n0"), source([2], id="n1"), *pads, node("ADD", "p0", "p1"))))
    found = ptir_tools.run(after, [np.float32([1, 2]), np.float32([5, 6])])
    expected = [1 + values[1], 2 + values[1], 5 + values[0], 6 + values[0]]
    np.testing.assert_array_equal(next(iter(found.values())), np.float32(expected))


def test_names_carry_over() -> None:
    x = source([2], id="n0")
    x["arg"]["tensor_id"] = "a.é b"
    after = to_ptir(good(graph(x, node("NEG", "n0", id="a_b_0"), node("RELU", "a_b_0", id="1st"), node("NEG", "n0", id="a_b"))))
    assert [p.name for p in after.main.params] == ["a.é_b"]
    assert after.main.attrs["input_names"] == ["a.é b"]
    assert [v.name for v in after.main.results] == ["1st", "a_b"]


def test_what_needs_numbers_is_refused_at_every_node() -> None:
    text = graph(
        source(["N", 4]), node("PAD", id="a", pad=[[0, "p"], [0, 0]]), node("SHRINK", id="b", lo=["l", 0], hi=["N", 2]),
        node("VIEW", id="e", result_shape=["N", 2], index_map={"map": ["i0", "s*i1"]}),
    )  # fmt: skip
    assert refusals(text) == ["UnboundSymbol"] * 3


def test_expressions_are_symbols() -> None:
    """An extent is its expression, there and back."""
    before = good(
        graph(source(["H*D", 4]), node("PAD", pad=[[1, 1], [0, 0]]), node("RESHAPE", "y", id="z", result_shape=["4*D*H+8"]))
    )
    after = to_ptir(before)
    assert [str(op.result.type) for op in after.main.body] == ["tensor<f32, (D*H+2)x4>", "tensor<f32, (4*D*H+8)>"]
    x = np.arange(24, dtype=np.float32).reshape(6, 4)
    np.testing.assert_array_equal(run(before, [x], {"H": 2, "D": 3})[0], run(after, [x], {"H": 2, "D": 3})[0])
    back = translate(after, "tiny", Diagnostics())
    assert back is not None and printed(back) == printed(before)


@pytest.mark.parametrize(
    ("window", "strides", "dilation"), [([2, 3], [1, 2], [1, 1]), ([2, 2], [2, 2], [2, 1]), ([3, 1], [1, 1], [1, 1])]
)
def test_a_reduced_window_comes_back_as_one(window: list[int], strides: list[int], dilation: list[int]) -> None:
    """It is recognized: no elements are gathered one by one."""
    shape = "x".join(str((n - (w - 1) * d - 1) // s + 1) for n, w, s, d in zip((7, 9), window, strides, dilation, strict=True))
    attrs = f"window_dims{window} strides{strides} padding[[0, 0], [0, 0]] base_dilation[1, 1] window_dilation{dilation}"
    op = f"reduce_window(%x) {attrs} reduce[max] -> tensor<f32, {shape}>"
    before = ptir_tools.read(f"func @f(%x: tensor<f32, 7x9>) -> tensor<f32, {shape}> {{\n  %z = {op}\n  return %z\n}}\n")
    after = ptir_tools.translate(ptir_tools.translate(before, "tiny"), "ptir")
    (back,) = after.main.body
    assert back.defn.short == "reduce_window" and list(back.attr("window_dims")) == window


def test_whole_axes_may_stay_symbols_in_views() -> None:
    before = good(graph(source(["N", 6]), node("FLIP", id="a", axes=[1]), node("POOL", "a", kernel=[2], stride=[2])))
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    np.testing.assert_array_equal(run(before, [x], {"N": 2})[0], run(to_ptir(before), [x], {"N": 2})[0])


def test_a_huge_step_costs_nothing() -> None:
    before = good(graph(source([3]), node("SHRINK", lo=[1], hi=[3], step=[10**15])))
    after = to_ptir(before)
    assert [op.defn.short for op in after.main.body] == ["slice"]
    agree(before, after, inputs_of(before))


def test_dims_are_put_in() -> None:
    after = to_ptir(good(graph(source(["N"]), node("PAD", pad=[["p", 1]]), dims={"p": 2, "N": 3})))
    assert [str(p.type) for p in after.main.params] == ["tensor<f32, 3>"]


EXP2 = {
    "plain": [node("EXP2")],
    "softmax": [node("MUL", "x", 1.4426950408889634, id="m"), node("EXP2", "m")],
    "other base": [node("MUL", "x", 2.5, id="m"), node("EXP2", "m")],
}


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("name", EXP2)
def test_exp2_keeps_range_and_rounding(name: str, dtype: str) -> None:
    """Exact for every float of 16 bits; in fp32 beside powers of two and at the ends of the range."""
    before = good(graph(source([4096], dtype), *EXP2[name]))
    ends = np.array([128, 127.99999, -149, -150.1, 16, 15.99, -24, -25.1, 0, -0.0, 1, 2, np.inf, -np.inf, np.nan])
    x = np.resize(np.concatenate([ends, np.linspace(-160, 140, 4000)]), 4096)
    inputs = [x.astype({"fp16": np.float16, "fp32": np.float32}.get(dtype) or inputs_of(before)[0].dtype)]
    with np.errstate(all="ignore"):
        (a,), (b,) = run(before, inputs), run(to_ptir(before), inputs)
    if name == "softmax" and dtype == "fp32":  # exp(x) instead of 2 ** round(x * log2(e)): the rounding is magnified by x
        np.testing.assert_allclose(b, a, rtol=3e-5)
    else:
        least = 1.5e-45 if dtype == "fp32" else 0  # 2 ** -150 is a tie
        np.testing.assert_allclose(b.astype(np.float64), a.astype(np.float64), rtol=0, atol=least)


# Passes


@given(st.integers(0, 2**32), st.sampled_from(["canonicalize", "normalize", "cse", "dce", "fold"]))
@settings(max_examples=100, deadline=None)
def test_passes_keep_the_meaning(seed: int, name: str) -> None:
    before, after = good(random_text(seed)), good(random_text(seed))
    run_pipeline(after, name, PassContext())
    agree(before, after, inputs_of(before, seed, special=True))
    again = good(printed(after), "strict" if name in ("canonicalize", "normalize") else "seed")
    agree(before, again, inputs_of(before, seed, special=True))


def canonical(*nodes: dict, **rest: object) -> list[str]:
    """The UOps that `canonicalize` leaves."""
    program = good(graph(*nodes, **rest))
    run_pipeline(program, "canonicalize", PassContext())
    return [f"{op.defn.short} {op.result.name}" for op in program.main.body]


X = source([3, 4])
NOOPS = [
    node("RESHAPE", id="a", result_shape=[3, 4]), node("PERMUTE", id="a", perm=[0, 1]), node("CAST", id="a", to="fp32"),
    node("EXPAND", id="a", result_shape=[3, 4]), node("PAD", id="a", pad=[[0, 0], [0, 0]]), node("FLIP", id="a", axes=[]),
    node("SHRINK", id="a", lo=[0, 0], hi=[3, 4]), node("VIEW", id="a", result_shape=[3, 4], index_map={"map": ["i0", "i1"]}),
]  # fmt: skip


@pytest.mark.parametrize("n", NOOPS, ids=lambda n: n["uop"])
def test_movement_that_moves_nothing_is_dropped_unless_it_is_an_output(n: dict) -> None:
    assert canonical(X, n, node("NEG", "a")) == ["NEG y"]
    assert canonical(X, n) == [f"{n['uop']} a"]


def test_movement_that_moves_stays() -> None:
    for n in (node("FLIP", id="a", axes=[0]), node("SHRINK", id="a", lo=[0, 0], hi=[3, 4], step=[1, 2])):
        assert len(canonical(X, n, node("NEG", "a"))) == 2


def test_chains_are_merged() -> None:
    permutes = [node("PERMUTE", id="a", perm=[1, 0]), node("PERMUTE", "a", id="b", perm=[1, 0]), node("NEG", "b")]
    assert canonical(X, *permutes) == ["NEG y"]
    reshapes = [node("RESHAPE", id="a", result_shape=[12]), node("RESHAPE", "a", result_shape=[2, 6])]
    assert canonical(X, *reshapes) == ["RESHAPE y"]
    assert canonical(X, *reshapes, outputs=["a", "y"]) == ["RESHAPE a", "RESHAPE y"]


def test_dead_nodes_go_only_when_outputs_are_given() -> None:
    assert canonical(X, node("NEG", id="a"), node("RELU")) == ["NEG a", "RELU y"]
    assert canonical(X, node("NEG", id="a"), node("RELU"), outputs=["y"]) == ["RELU y"]


def test_outputs_are_written_when_they_would_change() -> None:
    program = good(graph(node("NEG", "c"), node("RELU", id="z"), X, node("EXP2", id="c")))
    assert '"outputs"' not in printed(program) or [v.name for v in program.main.results] == ["y", "z"]
    text = printed(program)
    assert [v.name for v in good(text).main.results] == ["y", "z"]
    merged = good(graph(X, node("NEG", id="a"), node("NEG", id="b"), node("ADD", "a", "b")))
    run_pipeline(merged, "cse", PassContext())
    assert [v.name for v in good(printed(merged)).main.results] == ["y"]


def test_tags_keep_nothing_apart() -> None:
    program = good(graph(X, node("NEG", id="a") | {"tag": "one"}, node("NEG", id="b") | {"tag": "two"}, node("ADD", "a", "b")))
    run_pipeline(program, "cse", PassContext())
    assert len(program.main.body) == 2


@given(
    st.integers(0, 2**32), st.sampled_from(["canonicalize", "normalize", "cse", "dce", "fold", "canonicalize,cse,canonicalize"])
)
@settings(max_examples=60, deadline=None)
def test_tags_and_storage_stay_with_the_id(seed: int, pipeline: str) -> None:
    value = json.loads(random_text(seed))
    for n in value["uops"]:
        n["tag"] = f"tag of {n['id']}"
        if n["uop"] == "INPUT":
            n["arg"]["storage"] = f"storage of {n['id']}"
    program = good(json.dumps(value))
    run_pipeline(program, pipeline, PassContext())
    ids = {n["id"] for n in value["uops"]}
    for n in json.loads(printed(program))["uops"]:
        assert n.get("tag") == (f"tag of {n['id']}" if n["id"] in ids else None)
        assert n["uop"] != "INPUT" or n["arg"]["storage"] == f"storage of {n['id']}"


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("gap", [0, 1, 2, "G"])
def test_elements_are_spread_as_they_are_padded(gap: int | str, before: int, first: int) -> None:
    """Elements as rows that are padded and joined, without the last gap: interior padding where nothing is before an element."""
    joined = 4 * (before + 1 + gap) if isinstance(gap, int) else f"4*{gap}+{4 * (before + 1)}"
    end = joined - gap if isinstance(gap, int) and isinstance(joined, int) else f"3*{gap}+{4 * (before + 1)}"
    text = graph(
        source([4]), source([gap], id="g"), node("RESHAPE", "x", id="apart", result_shape=[4, 1]),
        node("PAD", "apart", id="rows", pad=[[0, 0], [before, gap]], value=-1),
        node("RESHAPE", "rows", id="j", result_shape=[joined]), node("SHRINK", "j", lo=[first], hi=[end]),
    )  # fmt: skip
    after = translate(good(text), "ptir", found := Diagnostics())
    assert after is not None, [d.message for d in found]
    n = 2 if gap == "G" else int(gap)
    x = np.arange(4, dtype=np.float32)
    rows = np.pad(x[:, None], [(0, 0), (before, n)], constant_values=-1)
    (made,) = ptir_tools.run(after, [x, np.zeros(n, np.float32)], engine="reference").values()
    np.testing.assert_array_equal(made, rows.reshape(-1)[first : rows.size - n])
