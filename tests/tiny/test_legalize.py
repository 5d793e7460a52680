"""What a graph leaves implicit: EXPAND, broadcast_dimensions, implicit operands, in both profiles; pieces."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptir_tools.core.choices import Seeded
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.dtypes import BF16, F16, F32, I1
from ptir_tools.core.ir import Value
from ptir_tools.core.limits import Limits
from ptir_tools.core.source import Source
from ptir_tools.core.verify import verify
from ptir_tools.dialects import load_format
from ptir_tools.dialects.tiny.piecewise import Pieces, count
from ptir_tools.passes import PassContext, run_pipeline
from tests.growing import Growing, some
from tests.tiny.graphs import codes, good, graph, inputs_of, node, printed, read, run, sample, source
from tests.tiny.grown import generate


def explicit(text: str, bind: dict[str, int] | None = None) -> str:
    """The text after `normalize`, which profile strict accepts."""
    program = good(text, bind=bind)
    run_pipeline(program, "normalize", PassContext())
    shown = printed(program)
    assert codes(shown, "strict") == []
    return shown


# EXPAND (facts 10.3): operand shape, broadcast_dimensions, what axes of the result they become


@pytest.mark.parametrize(("shape", "axes", "inner"), [
    (["M", 1, "K"], [0, 2], ("M", 1, "K")),  # those not written 1
    (["M", 1, "K"], [0, 1, 2], ("M", 1, "K")),  # all of them
    (["M", "K"], [0, 2], ("M", 1, "K")),
    (["K"], None, (1, 1, "K")),
    ([1, 1], [], (1, 1, 1)),
    ([], [], (1, 1, 1)),
])  # fmt: skip
def test_both_forms_of_broadcast_dimensions(shape: list, axes: list[int] | None, inner: tuple) -> None:
    sizes = {"M": 1, "N": 3, "K": 2}  # M = 1 at run time changes nothing
    given = {} if axes is None else {"broadcast_dimensions": axes}
    text = graph(source(shape), source(["M", "N", "K"], id="w"), node("EXPAND", result_shape=["M", "N", "K"], **given))
    concrete = [sizes.get(d, d) for d in shape]
    x = np.arange(np.prod(concrete, dtype=int), dtype=np.float32).reshape(concrete)
    expected = np.broadcast_to(x.reshape([sizes.get(d, d) for d in inner]), (1, 3, 2))
    for program, numbers in ((good(text), sizes), (good(text, bind=sizes), {}), (good(printed(good(text))), sizes)):
        np.testing.assert_array_equal(run(program, [x, np.zeros((1, 3, 2), np.float32)], numbers)[0], expected)


# The binary normalizer (facts 10.5)


def test_both_sides_are_expanded() -> None:
    text = graph(source(["M", 1]), source([1, "N"], id="w"), node("ADD", "x", "w"))
    shown = explicit(text)
    assert '"id":"y_0e"' in shown and '"id":"y_1e"' in shown
    x, w = np.ones((2, 1), np.float32), np.arange(3, dtype=np.float32)[None]
    np.testing.assert_array_equal(run(good(text), [x, w], {"M": 2, "N": 3})[0], x + w)


def test_a_value_of_rank_0_is_expanded_an_immediate_adapts() -> None:
    text = graph(source([3]), source([], id="w"), node("ADD", "x", "w", id="a"), node("MUL", "a", 2))
    assert codes(text, "strict") == ["ExpandMissing"]
    np.testing.assert_array_equal(run(good(text), [np.ones(3, np.float32), np.float32(2)])[0], [6, 6, 6])


def reduced(*shape: object, axes: list) -> list[dict]:
    return [source(shape), node("REDUCE", id="s", op="SUM", axes=axes, dtype="fp32")]


def test_reduced_axes_come_back_through_unary_ops_and_immediates() -> None:
    nodes = [
        *reduced("M", "N", axes=["N"]), node("NEG", "s", id="t"), node("MUL", "t", 0.5, id="u"),
        node("CAST", "u", id="v", to="fp16"), node("SUB", "x", "v"),
    ]  # fmt: skip
    text = graph(*nodes)
    assert codes(text, "strict") == ["DtypeMismatch", "BroadcastMismatch"]
    shown = explicit(text)
    assert all(f'"id":"y_1{k}"' in shown for k in "cre")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(run(good(text), [x], {"M": 2, "N": 3})[0], x + 0.5 * x.sum(1, keepdims=True))


def test_two_alignments_are_refused() -> None:
    assert codes(graph(*reduced(4, 4, axes=[1]), node("SUB", "x", "s"))) == ["BroadcastMismatch"]
    assert codes(graph(*reduced(4, 4, axes=[0]), node("SUB", "x", "s"))) == []  # both alignments agree


def test_alignments_that_are_the_same_are_no_choice() -> None:
    text = graph(source([1, 4]), node("REDUCE", id="m", op="MAX", axes=[1], dtype="fp32"), node("SUB", "x", "m"))
    assert codes(text) == []


def test_a_column_and_its_largest_elements_are_a_choice() -> None:
    """[M, 1] and [M] would align from the right to [M, M]."""
    for shape, axis in ((["M", 1], 1), ([4, 1], 1), ([1, 3, 3], 2)):
        text = graph(source(shape), node("REDUCE", id="m", op="MAX", axes=[axis], dtype="fp32"), node("SUB", "x", "m"))
        assert codes(text) == ["BroadcastMismatch"]


def test_numbers_never_make_an_alignment() -> None:
    """Bindings are put in after what was written has been aligned: equal numbers do not broadcast wrongly."""
    text = graph(*reduced("M", "N", axes=["N"]), node("SUB", "x", "s"))
    program = good(text, bind={"M": 3, "N": 3})
    x = np.arange(9, dtype=np.float32).reshape(3, 3)
    np.testing.assert_array_equal(run(program, [x])[0], x - x.sum(1, keepdims=True))
    assert codes(graph(source(["M", "N"]), source(["M", "K"], id="w"), node("ADD", "x", "w"))) == ["BroadcastMismatch"]
    _, diagnostics = read(graph(source(["M"]), source(["K"], id="w"), node("ADD", "x", "w")), bind={"M": 3, "K": 3})
    assert [d.code for d in diagnostics] == ["BroadcastMismatch"]


def test_where_aligns_three_operands() -> None:
    nodes = [source(["M", "N"], "bool", "c"), source(["N"]), source([], "fp16", "w"), node("WHERE", "c", "x", "w")]
    assert codes(graph(*nodes), "strict") == ["DtypeMismatch", "ExpandMissing"]
    c = np.array([[True, False], [False, True]])
    found = run(good(graph(*nodes)), [c, np.array([1, 2], np.float32), np.float16(9)], {"M": 2, "N": 2})[0]
    np.testing.assert_array_equal(found, [[1, 9], [9, 2]])


@pytest.mark.parametrize(("a", "b"), [("fp16", "bf16"), ("fp32", "i32"), ("bool", "fp32"), ("i32", "bool")])
def test_only_widening_to_fp32_is_implicit(a: str, b: str) -> None:
    assert codes(graph(source([2], a), source([2], b, "w"), node("MAX", "x", "w"))) == ["DtypeMismatch"]


def test_inserted_ids_avoid_those_that_are_there() -> None:
    text = graph(source([3]), source([1], id="w"), node("NEG", id="y_1e"), node("ADD", "y_1e", "w"))
    assert '"id":"y_1e_1"' in explicit(text)


@pytest.mark.parametrize("name", ["seed_5_1_gemm", "seed_5_2_conv2d", "seed_5_3_attention", "30c_missing_expand"])
def test_normalized_samples_are_strict_and_equal(name: str) -> None:
    sizes = {"seed_5_2_conv2d": {"N": 2, "H": 5, "W": 6, "Cin_total": 4, "Cin": 2, "Cout": 6, "Kh": 3, "Kw": 3, "pt": 1, "pb": 1,
                                 "pl": 1, "pr": 1, "Sh": 2, "Sw": 2, "Dh": 1, "Dw": 1}}  # fmt: skip
    numbers = sizes.get(name, {"M": 4, "K": 6, "N": 5, "B": 2, "H": 3, "D": 8})
    before, after = good(sample(name), bind=numbers), good(explicit(sample(name)), "strict", numbers)
    inputs = inputs_of(before)
    for x, y in zip(run(before, inputs), run(after, inputs), strict=True):
        np.testing.assert_array_equal(x, y)


def test_an_expand_does_not_equate_two_given_symbols() -> None:
    nodes = [source(["M", "K"]), source(["N"], id="w"), node("EXPAND", result_shape=["M", "N"])]
    assert codes(graph(*nodes)) == ["BroadcastMismatch"]


# ExcessivePiecewise (facts section 11)


def pieces(*nodes: dict) -> int:
    """Into how many pieces the last node falls."""
    program = good(graph(source((2, 2, 2)), *nodes))
    seen = Pieces(limit=10**9)
    for op in program.main.body:
        seen.follow(op)
    axes = seen.axes.get(program.main.body[-1].result)
    return 1 if axes is None else count(axes)


def chain(*steps: tuple[str, dict]) -> list[dict]:
    return [node(uop, f"n{i - 1}" if i else "x", id=f"n{i}", **arg) for i, (uop, arg) in enumerate(steps)]


PAD2 = ("PAD", {"pad": [[1, 1], [1, 1], [0, 0]]})
CASES = {
    "two axes": ([PAD2], 9),
    "a symbol counts": ([("PAD", {"pad": [["p", "q"], [0, 0], [0, 0]]})], 3),
    "the same value is one pad": ([PAD2, PAD2], 9),
    "other values are not": ([PAD2, ("PAD", {"pad": [[1, 1], [1, 1], [0, 0]], "value": 1})], 25),
    "permute moves": ([PAD2, ("PERMUTE", {"perm": [2, 0, 1]}), ("PAD", {"pad": [[1, 1], [0, 0], [0, 0]]})], 27),
    "shrink drops what is cut off": ([PAD2, ("SHRINK", {"lo": [1, 0, 0], "hi": [4, 4, 2]})], 6),
    "a step adds its guard": ([("SHRINK", {"lo": [0, 0, 0], "hi": [2, 2, 2], "step": [2, 1, 2]})], 4),
    "ones come and go": (
        [PAD2, ("RESHAPE", {"result_shape": [4, 1, 4, 2]}), ("PAD", {"pad": [[0, 0]] * 2 + [[0, 1], [0, 0]]})], 9),
    "a true reshape keeps the product": ([PAD2, ("RESHAPE", {"result_shape": [32]}), ("PAD", {"pad": [[1, 1]]})], 11),
    "computing starts again": ([PAD2, ("NEG", {}), PAD2], 9),
    "expand gives new axes one": ([PAD2, ("EXPAND", {"result_shape": [3, 4, 4, 2]})], 9),
    "flip reverses": (
        [("PAD", {"pad": [[1, 0], [0, 0], [0, 0]]}), ("FLIP", {"axes": [0]}), ("PAD", {"pad": [[0, 1], [0, 0], [0, 0]]})], 2),
    "views double per operator": (
        [PAD2, ("VIEW", {"result_shape": [4, 4], "index_map": {"map": ["i0//2", "i0%2", 0], "guard": ["i1>=1"]}})], 72),
    "pool adds axes of one": ([PAD2, ("POOL", {"kernel": [2]})], 9),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_pieces(name: str) -> None:
    steps, expected = CASES[name]
    assert pieces(*chain(*steps)) == expected


def test_the_limit_is_128_and_an_option() -> None:
    diagnostics = Diagnostics(Source("g", graph(source((2,)), node("PAD", pad=[[1, 1]]))))
    options = Options(limits=Limits(pieces=2))
    program = load_format("tiny").read(diagnostics.source, diagnostics, options)
    assert program is not None and not verify(program, diagnostics, options)
    assert [d.code for d in diagnostics] == ["ExcessivePiecewise"]
    assert codes(graph(source((2,) * 4), node("PAD", pad=[[1, 1]] * 4))) == []
    three = [("PAD", {"pad": [[1, 1], [1, 1]], "value": v}) for v in range(3)]
    view = ("VIEW", {"result_shape": [8, 8], "index_map": {"map": ["i0//2", "i1//2"]}})
    assert codes(graph(source((2, 2)), *chain(*three))) == []
    two = ("VIEW", {"result_shape": [8, 8], "index_map": {"map": ["i0//2+i0%2", "i1//2+i1%2"]}})
    assert codes(graph(source((2, 2)), *chain(*three, view))) == ["ExcessivePiecewise"]
    assert codes(graph(source((2, 2)), *chain(*three, two))) == ["ExcessivePiecewise"]


class Implicit:
    """Steps of a generator whose EXPAND, CAST and RESHAPE a person would leave out; `left_out` has the sources of these."""

    def __init__(self) -> None:
        self.left_out: dict[str, str] = {}

    def hidden(self, g: Growing, source: Value, uop: str, **attrs: Any) -> Value:
        made = g.b.op(uop, source, **attrs)
        self.left_out[made.name] = source.name
        return made

    def part(self, g: Growing, x: Value) -> Value | None:
        """`x` and a part of it that aligns from the right."""
        shape = x.type.static_shape
        if 0 in shape or x.type.dtype is I1:
            return None
        cut = [g.choices.flag() for _ in shape]
        part = g.b.op("SHRINK", x, lo=(0,) * len(shape), hi=tuple(1 if c else d for c, d in zip(cut, shape, strict=True)))
        lead = g.choices.number(0, cut.index(False) if False in cut else len(cut))
        small = g.b.op("RESHAPE", part, result_shape=part.type.shape[lead:])
        whole = self.hidden(g, small, "EXPAND", result_shape=shape, broadcast_dimensions=tuple(range(lead, len(shape))))
        return g.b.op("ADD", x, whole) if g.choices.flag() else g.b.op("SUB", whole, x)

    def reduced(self, g: Growing, x: Value) -> Value | None:
        """`x` without its largest elements along some axes."""
        shape = x.type.static_shape
        if 0 in shape or x.type.dtype is not F32:
            return None
        axes = tuple(sorted(some(g.choices, range(len(shape)))))
        best = g.b.op("NEG", g.b.op("REDUCE", x, op="MAX", axes=axes, dtype=F32))
        ones = tuple(1 if i in axes else d for i, d in enumerate(shape))
        kept = self.hidden(g, best, "RESHAPE", result_shape=ones)
        whole = self.hidden(g, kept, "EXPAND", result_shape=shape, broadcast_dimensions=tuple(range(len(shape))))
        return g.b.op("ADD", x, whole)

    def narrow(self, g: Growing, x: Value) -> Value | None:
        """`x` and half of it in fewer bits."""
        if x.type.dtype is not F32:
            return None
        half = g.b.op("CAST", g.b.op("MUL", x, x), to=g.choices.one((F16, BF16)))
        return g.b.op("MAX", x, self.hidden(g, half, "CAST", to=F32))

    def text(self, program: Program) -> str:
        """The program without what is left out."""
        value = json.loads(printed(program))
        value["uops"] = [n for n in value["uops"] if n["id"] not in self.left_out]
        for n in value["uops"]:
            while any(s in self.left_out for s in n.get("src", [])):
                n["src"] = [self.left_out.get(s, s) for s in n["src"]]
        return json.dumps(value)


@given(st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_what_is_left_out_comes_back(seed: int) -> None:
    """A graph without its EXPANDs, CASTs and RESHAPEs is mended, or refused as ambiguous; normalized, strict accepts it."""
    steps = Implicit()
    before = generate(Seeded(seed), size=6, growers=[steps.part, steps.reduced, steps.narrow])
    before.attrs["outputs"] = True
    text = steps.text(before)
    if set(codes(text)) == {"BroadcastMismatch"}:
        assert any("ambiguous" in d.message for d in read(text)[1])
        return
    after = good(explicit(text), "strict")
    inputs = inputs_of(before, seed)
    with np.errstate(all="ignore"):
        for x, y in zip(run(before, inputs), run(after, inputs), strict=True):
            np.testing.assert_array_equal(x.astype(float), y.astype(float))
