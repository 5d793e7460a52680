"""Tiny's reader, writer and layout."""

import json
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptir_tools.core.diagnostics import Diagnostics, Severity
from ptir_tools.core.dialect import Options
from ptir_tools.core.source import Source
from ptir_tools.dialects import jsonc, reading
from ptir_tools.dialects.tiny.text.fmt import _TOKEN, format_text
from tests.tiny.graphs import SAMPLES, codes, good, graph, node, printed, random_text, read, sample, source

X = source([3, 4])


def test_nodes_may_come_in_any_order() -> None:
    program = good(sample("16_unordered_nodes"))
    assert [op.defn.short for op in program.main.body] == ["SUB", "RELU"]
    assert [v.name for v in program.main.results] == ["y"]


def test_inputs_come_first_as_they_are_listed() -> None:
    a, b, c = source([2], id="a"), source([2], id="b"), source([3], id="c")
    program = good(graph(node("SUB", "b", "a", id="y"), a, node("NEG", "c", id="z"), b, c))
    assert [p.name for p in program.main.params] == ["a", "b", "c"]
    assert [op.result.name for op in program.main.body] == ["y", "z"]


def test_default_outputs_are_the_sinks_in_listing_order() -> None:
    text = graph(node("NEG", id="b"), node("NEG", id="a"), X, source([1], id="unused"))
    assert [v.name for v in good(text).main.results] == ["b", "a"]


def test_outputs_may_be_inputs_and_repeat() -> None:
    assert [v.name for v in good(graph(X, node("NEG"), outputs=["x", "y", "x"])).main.results] == ["x", "y", "x"]


def test_inputs_keep_everything_they_say() -> None:
    x = source([3, "N"], "bf16")
    x["arg"] |= {"tensor_id": "X 1", "storage": "const_pool"}
    program = good(graph(x | {"tag": "weights"}, node("NEG") | {"tag": "hint"}))
    assert program.main.attrs["input_names"] == ["X 1"]
    again = good(printed(program))
    assert printed(again) == printed(program)
    assert again.main.attrs["tags"] == {"x": "weights", "y": "hint"}
    assert again.main.attrs["storage"] == {"x": "const_pool"}


BAD_GRAPHS = {
    "no_uops": ("{}", ["InvalidNode"]),
    "not_an_object": ("[]", ["InvalidNode"]),
    "node_is_no_object": (graph(X, 3), ["InvalidNode"]),
    "node_without_id": (graph(X, {"uop": "NEG", "src": ["x"]}), ["InvalidNode"]),
    "node_without_uop": (graph(X, {"id": "y", "src": ["x"]}), ["InvalidNode"]),
    "node_with_name": (graph(X, node("NEG") | {"name": "n"}), ["InvalidNode"]),
    "src_is_no_list": (graph(X, {"id": "y", "uop": "NEG", "src": "x"}), ["InvalidNode"]),
    "null_source": (graph(X, node("ADD", "x", None)), ["InvalidSource"]),
    "nested_source": (graph(X, node("ADD", "x", ["x"])), ["InvalidSource"]),
    "too_many_sources": (graph(X, node("NEG", "x", "x")), ["InvalidSource"]),
    "immediates_alone": (graph(X, node("ADD", 1, 2)), ["InvalidSource"]),
    "where_without_a_dtype": (graph(source([2], "bool"), node("WHERE", "x", 1, 2)), ["InvalidSource"]),
    "input_with_src": (graph(X | {"src": ["x"]}), ["CycleDetected"]),
    "input_with_immediate": (graph(X | {"src": [1]}), ["InvalidSource"]),
    "input_without_shape": (graph({"id": "x", "uop": "INPUT", "arg": {"tensor_id": "X", "dtype": "fp32"}}), ["InvalidArg"]),
    "input_of_unknown_dtype": (graph(source([1], "f32")), ["UnknownDtype"]),
    "input_with_unknown_arg": (graph(X | {"arg": X["arg"] | {"layout": 1}}), ["InvalidArg"]),
    "one_tensor_twice": (graph(X, X | {"id": "z"}), ["DuplicateId"]),
    "negative_extent": (graph(source([-1])), ["InvalidArg"]),
    "bool_extent": (graph(source([True])), ["InvalidArg"]),
    "no_expression": (graph(source(["M N"])), ["InvalidArg"]),
    "internal_axis": (graph(source(["@0"])), ["InvalidArg"]),
    "deep_expression": (graph(source(["(" * 300 + "M" + ")" * 300])), ["InvalidArg"]),
    "long_expression": (graph(source(["M+" * 2000 + "M"])), ["InvalidArg"]),
    "wide_expression": (graph(source(["*".join(["(a+b+c+d)"] * 20)])), ["InvalidArg"]),
    "outputs_is_no_list": (graph(X, node("NEG"), outputs="y"), ["InvalidArg"]),
    "unknown_output": (graph(X, node("NEG"), outputs=["z", 3]), ["UndefinedNode", "UndefinedNode"]),
    "negative_dim": (graph(X, node("NEG"), dims={"M": -1}), ["InvalidArg"]),
    "dim_is_no_symbol": (graph(X, node("NEG"), dims={"M*N": 4}), ["InvalidArg"]),
    "dims_is_no_object": (graph(X, node("NEG"), dims=[1]), ["InvalidArg"]),
    "every_error_at_once": (graph(X, node("FOO", id="a"), node("NEG", "q", id="b"), node("CAST", id="c", to="f8")),
                            ["UnknownUop", "UndefinedNode", "UnknownDtype"]),
    "users_of_an_error_are_silent": (graph(X, node("FOO", id="a"), node("NEG", "a", id="b"), node("ADD", "b", "x")),
                                     ["UnknownUop"]),
    "an_id_that_no_node_has_is_told_once": (graph(X, node("NEG", "q", id="a"), node("NEG", "q", id="b"), outputs=["q", "a"]),
                                           ["UndefinedNode"]),
    "a_node_without_an_id_may_be_it": (graph(X, {"uop": "NEG", "src": ["x"]}, node("NEG", "q", id="b"), outputs=["r"]),
                                       ["InvalidNode"]),
    "two_cycles": (graph(X, node("NEG", "a", id="a"), node("ADD", "c", "x", id="b"), node("NEG", "b", id="c")),
                   ["CycleDetected", "CycleDetected"]),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_GRAPHS)
def test_bad_graphs(name: str) -> None:
    text, expected = BAD_GRAPHS[name]
    assert codes(text) == expected


def test_errors_stand_at_their_nodes() -> None:
    _, diagnostics = read(sample("36_cycle"))
    (cycle,) = diagnostics.sorted()
    assert cycle.where[1:] == (4, 34) and "a -> b -> a" in cycle.message


def test_unknown_keys_of_the_graph_warn() -> None:
    assert codes(graph(X, node("NEG"), version=1), severity=Severity.WARNING) == ["UnknownKey"]


def test_a_long_chain_listed_backward() -> None:
    n = 20_000
    nodes = [node("NEG", f"n{i - 1}" if i else "x", id=f"n{i}") for i in reversed(range(n))]
    assert len(good(graph(*nodes, X)).main.body) == n


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.stem)
def test_printing_is_stable(path) -> None:
    program, diagnostics = read(path.read_text("utf-8"))
    if not diagnostics.errors:
        text = printed(program)
        assert printed(good(text)) == text
        assert good(text, "strict" if "POOL" not in text else "seed")


@given(st.integers(0, 2**32))
@settings(max_examples=50, deadline=None)
def test_random_graphs_print_and_read_back(seed: int) -> None:
    text = printed(good(random_text(seed)))
    assert printed(good(text)) == text
    assert format_text(Source("g", text), Diagnostics()) == text


def test_numbers_that_json_cannot_say() -> None:
    x = source([2], id="inf")
    nodes = [x, *(node("ADD", "inf", v, id=f"y{i}") for i, v in enumerate(("-inf", "nan", "+inf")))]
    assert '["inf", "-inf"]' in printed(good(graph(*nodes)))
    assert '["inf", "nan"]' in printed(good(graph(*nodes)))
    assert '["inf", "INF"]' in printed(good(graph(*nodes)))  # `inf` is a node here


def test_axes_named_like_symbols() -> None:
    view = node("VIEW", result_shape=[2], index_map={"axes": ["k"], "map": ["i0-k"]})
    text = printed(good(graph(source([4]), view)))
    assert '"index_map":{"axes":["j0"], "map":["i0-j0"]}' in text and printed(good(text)) == text


# Layout


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.stem)
def test_layout_keeps_every_token_and_comment(path) -> None:
    before = path.read_text("utf-8")
    after = format_text(Source("g", before), Diagnostics())
    assert after is not None and tokens(after) == tokens(before)
    assert format_text(Source("g", after), Diagnostics()) == after


def tokens(text: str) -> list[str]:
    return [t.rstrip() for t in _TOKEN.findall(text) if t != "\n"]


@given(st.integers(0, 2**32))
@settings(max_examples=50, deadline=None)
def test_layout_of_scattered_blanks_and_comments(seed: int) -> None:
    rng = random.Random(seed)
    pieces = re.findall(r'"(?:\\.|[^"\\])*"|[^"]', sample("36_cycle"))
    noise = ["", "", "", " ", "\n", "\n\n\n", "// c\n", "/* d */", "\t/* e\n f */"]
    text = "".join(p + (rng.choice(noise) if p in ',:{}[]"' or p.startswith('"') else "") for p in pieces)
    after = format_text(Source("g", text), Diagnostics())
    assert after is not None and tokens(after) == tokens(text)
    assert format_text(Source("g", after), Diagnostics()) == after
    assert jsonc.parse(Source("g", after), Diagnostics()) == jsonc.parse(Source("g", text), Diagnostics())


def test_layout_of_what_is_no_json() -> None:
    diagnostics = Diagnostics()
    assert format_text(Source("g", '{"uops":[}'), diagnostics) is None and diagnostics.errors


@given(st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_damaged_graphs_never_crash(seed: int) -> None:
    rng = random.Random(seed)
    text = rng.choice(SAMPLES).read_text("utf-8")
    for _ in range(rng.randint(1, 4)):
        words = list(re.finditer(r'"[^"]*"|-?\d+|[\[\]{},:]', text))
        a, b = rng.choice(words), rng.choice(words)
        text = text[: a.start()] + rng.choice([b[0], "", "null", "-1", '"K*2"', "1e99", "{}", "[]"]) + text[a.end() :]
    program, diagnostics = read(text)
    assert diagnostics.errors or program is not None
    if program is not None and not diagnostics.errors:
        assert printed(good(printed(program))) == printed(program)


@pytest.mark.parametrize("chosen", [(False, True), (True, False), (True, True)])
def test_where_of_bools_is_a_bool(chosen: tuple[bool, bool]) -> None:
    mask = source([2], "bool")
    program = good(graph(mask, node("WHERE", "x", *chosen)))
    assert str(program.main.results[0].type) == str(program.main.params[0].type)
    assert codes(graph(mask, node("WHERE", "x", True, 1))) == ["InvalidSource"]
    assert codes(graph(mask, node("WHERE", True, True, False))) == ["InvalidSource"]


@pytest.mark.parametrize("spelled", ["f32", "float16", "bfloat16", "boolean", "int", "FP32", "fp23"])
def test_a_dtype_of_another_tool_is_mended_to_one_of_ours(spelled: str, ptir) -> None:
    text = graph(source([1], spelled), node("NEG"))
    assert codes(text) == ["UnknownDtype"]
    mended = ptir("fix", "--unsafe", "-", stdin=text.encode()).text
    assert not set(codes(mended)) & {"UnknownDtype", "InvalidJson", "ParseError"} and spelled not in mended.split('"')
    assert json.loads(mended)["uops"][0]["arg"]["dtype"] in ("fp32", "fp16", "bf16", "bool", "i32")


@pytest.mark.parametrize("spelled", ["quaternion", ""])
def test_what_is_no_dtype_of_any_tool_is_not_mended(spelled: str, ptir) -> None:
    text = graph(source([1], spelled), node("NEG"))
    assert ptir("fix", "--unsafe", "-", stdin=text.encode()).text == text


@pytest.mark.parametrize(
    "pad", ["[[1, 1], 2]", "[[1, 1], [2]]", "[[1, 1], [2, 3, 4]]", "[1, 1]", '[[1, 1], "ab"]', "{}", "[[1, 1], []]"]
)
def test_widths_are_pairs(pad: str) -> None:
    text = f"""{{"uops": [
      {{"id": "x", "uop": "INPUT", "arg": {{"tensor_id": "x", "dtype": "i32", "shape": [2, 2]}}}},
      {{"id": "y", "uop": "PAD", "src": ["x"], "arg": {{"pad": {pad}}}}}
    ]}}"""
    found = Diagnostics()
    reading.read(Source("pads", text), found, Options(), "tiny")
    assert [d.code for d in found] == ["InvalidArg"] and "pair" in found.items[0].message
