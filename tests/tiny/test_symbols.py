"""Expressions as polynomials, bindings, "dims", inference."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptir_tools.core import expressions as ex
from ptir_tools.core import symbols
from ptir_tools.core.builder import single_function
from ptir_tools.core.diagnostics import Severity
from ptir_tools.core.dialect import clone
from ptir_tools.core.dtypes import F32
from ptir_tools.core.types import sym, tensor
from ptir_tools.core.violations import Violation
from ptir_tools.dialects import load_dialect
from ptir_tools.dialects.tiny.ops.rules import type_text
from ptir_tools.dialects.tiny.sizes import choose
from tests.tiny.graphs import CONV, codes, good, graph, inputs_of, node, read, run, sample, source

NAMES = "abcd"


def random_expression(rng: random.Random, depth: int = 3) -> str:
    """An expression that Python evaluates alike; divisors are positive."""
    if depth == 0 or rng.random() < 0.2:
        return rng.choice([*NAMES, str(rng.randint(0, 5))])
    left, right = (random_expression(rng, depth - 1) for _ in "ab")
    op = rng.choice(["+", "-", "*", "//", "%", "neg"])
    if op == "neg":
        return f"-({left})"
    return f"({left}){op}{rng.choice(['2', '3', 'd'])}" if op in ("//", "%") else f"({left}){op}({right})"


@given(st.integers(0, 2**32))
@settings(max_examples=300, deadline=None)
def test_normal_form_keeps_the_value(seed: int) -> None:
    rng = random.Random(seed)
    text = random_expression(rng)
    p = ex.parse(text)
    assert ex.parse(str(p)) == p
    for _ in range(3):
        values = {n: rng.randint(-9, 9) for n in NAMES} | {"d": rng.randint(1, 9)}
        expected = eval(text, {}, values)
        assert p.evaluate(values) == expected == eval(str(p), {}, values)
        assert p.put({n: ex.constant(v) for n, v in values.items()}).value == expected
        some = {n: ex.constant(values[n]) for n in "ac"}
        assert p.put(some).evaluate(values) == expected
        low, high = p.interval({n: (min(0, v), max(1, v)) if n != "d" else (max(1, v - 2), v + 1) for n, v in values.items()})
        assert low <= expected <= high
        assert abs(expected) <= p.magnitude({n: (v, v) for n, v in values.items()})


@pytest.mark.parametrize(("a", "b"), [
    ("H*D", "D*H"), ("2*(a+b)", "a*2+b+b"), ("(G*C)//G", "C"), ("N-N+1", "1"), ("(4*a+2)//2", "2*a+1"), ("a%1", "0"),
    ("floordiv(a,3)", "a//3"), ("mod(a,3)", "a%3"), ("- -a", "a"), ("7//2", "3"), ("-7//2", "-4"), ("-7%4", "1"),
    ("(2*N+1)//2", "N"), ("(2*N+1)%2", "1"), ("(W+s-k)//s", "(W-k)//s+1"), ("(4*a+6*b)%8", "2*((2*a+3*b)%4)"),
    ("(2*a)//(4*b+6)", "a//(2*b+3)"), ("(a+b)%(b+a)", "0"),
])  # fmt: skip
def test_equal_polynomials_have_one_text(a: str, b: str) -> None:
    assert str(ex.parse(a)) == str(ex.parse(b))
    assert ex.to_dim(ex.parse(a)) is ex.to_dim(ex.parse(b)) or isinstance(ex.to_dim(ex.parse(a)), int)


def test_shapes_of_equal_polynomials_are_equal() -> None:
    text = graph(source(["H*D"]), source(["D*H"], id="w"), node("ADD", "x", "w"))
    assert codes(text, "strict") == []
    assert codes(graph(source(["H*D"]), node("RESHAPE", result_shape=["D", "H"])), "strict") == []


def test_result_types_are_written_in_symbols() -> None:
    nodes = [
        source(["N", "W"]), node("PAD", id="p", pad=[[0, 0], ["l", "r"]]),
        node("POOL", "p", id="q", kernel=["k"], stride=["s"]), node("SHRINK", "p", id="z", lo=[0, 1], hi=["N", "W"], step=[1, 2]),
    ]  # fmt: skip
    types = {op.result.name: type_text(op.result.type) for op in good(graph(*nodes)).main.body}
    assert types == {"p": "fp32[N, W+l+r]", "q": "fp32[N, (W+l+r-k)//s+1, k]", "z": "fp32[N, W//2]"}


# Inference (facts 10.4)


def test_the_convolution_of_the_specification_is_inferred() -> None:
    given = {k: v for k, v in CONV.items() if k != "Ct"}
    program, diagnostics = read(sample("seed_5_2_conv2d"), bind=given)
    notes = {d.message.rpartition(" gives ")[2] for d in diagnostics if d.code == "InferredSymbol"}
    assert notes == {"G = 2", "Rcout = 3", "Oy = 5", "Ox = 4"}
    assert program is not None
    numbers = dict(given)
    symbols.specialize(clone(program), numbers)
    assert {k: numbers[k] for k in ("G", "Rcout", "Oy", "Ox")} == {"G": 2, "Rcout": 3, "Oy": 5, "Ox": 4}


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_the_convolution_of_the_specification_is_one(groups: int) -> None:
    sizes = {k: v for k, v in CONV.items() if k != "Ct"} | {"Cin": 4 // groups, "Cout": 8}
    program = good(sample("seed_5_2_conv2d"), bind=sizes)
    x, w, b = inputs_of(program)
    pad = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (1, 1), (1, 1)])
    expected = np.zeros((2, 8, 5, 4))
    for o in range(8):
        first = (o // (8 // groups)) * (4 // groups)
        for i in range(5):
            for j in range(4):
                window = pad[:, first : first + 4 // groups, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3]
                expected[:, o, i, j] = (window * w[o].astype(float)).sum((1, 2, 3)) + float(b[o])
    np.testing.assert_allclose(run(program, [x, w, b])[0].astype(float), expected, rtol=3e-3, atol=3e-2)


def inferred(*nodes: dict, **dims: int) -> dict[str, int]:
    """What `specialize` adds to "dims"."""
    program = good(graph(*nodes, dims=dims))
    numbers: dict[str, int] = {}
    symbols.specialize(program, numbers)
    return {k: v for k, v in numbers.items() if k not in dims}


def test_reshape_takes_extents_opposite_and_divides_last() -> None:
    assert inferred(source([12, 7]), node("RESHAPE", result_shape=["a", "b", 7]), b=4) == {"a": 3}
    assert inferred(source([5, 6, 7]), node("RESHAPE", result_shape=["a", 1, "b", "c"])) == {"a": 5, "b": 6, "c": 7}
    assert inferred(source([12]), node("RESHAPE", result_shape=["2*a"])) == {"a": 6}


def test_expand_takes_extents_that_are_not_1() -> None:
    text = [
        source([3]),
        node("EXPAND", result_shape=["a", "b"]),
        source([1], id="w"),
        node("EXPAND", "w", id="z", result_shape=["a"]),
    ]
    assert inferred(*text, a=2) == {"b": 3}


@pytest.mark.parametrize(("shape", "to"), [((3,), None), ((3,), (1,)), ((1, 3), (1,)), ((1, 3), None)])
def test_expand_determines_before_its_axes_are_completed(shape: tuple[int, ...], to: tuple[int, ...] | None) -> None:
    program, b = single_function(load_dialect("tiny"))
    x = b.param(tensor(F32, shape), "x")
    b.results(b.op("EXPAND", x, result_shape=(sym("a"), sym("b")), broadcast_dimensions=to))
    assert choose(program, {"a": 2}) == {}
    numbers = {"a": 2}
    symbols.specialize(program, numbers)
    assert numbers == {"a": 2, "b": 3}


def test_later_nodes_feed_earlier_ones() -> None:
    nodes = [source([6]), node("RESHAPE", id="a", result_shape=["p", "q"]), node("RESHAPE", id="b", result_shape=["p", 2])]
    assert inferred(*nodes) == {"p": 3, "q": 2}


def test_a_fraction_is_refused() -> None:
    assert codes(graph(source([7]), node("RESHAPE", result_shape=["a", 2]))) == ["AxisSizeMismatch"]


def test_dims_are_checked_when_they_settle_something() -> None:
    assert codes(graph(source(["M", 2]), node("RESHAPE", result_shape=[7]), dims={"M": 3})) == ["AxisSizeMismatch"]
    view = node("VIEW", result_shape=["M"], index_map={"map": ["i0+1"]})
    assert codes(graph(source(["M"]), view)) == []
    assert codes(graph(source(["M"]), view, dims={"M": 4})) == ["UnguardedAccess"]
    assert codes(graph(source(["M-3"]), node("NEG"), dims={"M": 2})) == ["InvalidArg"]


def test_bindings_replace_dims() -> None:
    text = graph(source(["M"]), node("NEG"), dims={"M": 3})
    assert run(good(text, bind={"M": 5}), [np.ones(5, np.float32)])[0].shape == (5,)


def test_bindings_that_break_an_extent_are_reported_at_the_node() -> None:
    _, diagnostics = read(graph(source(["N"]), node("SHRINK", lo=["p-2"], hi=["N"])), bind={"p": 1})
    assert [d.code for d in diagnostics if d.severity is Severity.ERROR] == ["InvalidArg"]
    _, diagnostics = read(graph(source([4]), node("RESHAPE", result_shape=["4//g", "g"])), bind={"g": 0})
    assert [d.code for d in diagnostics if d.severity is Severity.ERROR] == ["InvalidArg"]


def test_an_extent_known_as_a_whole_gives_its_symbol() -> None:
    program = good(graph(source(["H*D"]), node("RESHAPE", result_shape=["H", "D"]), dims={"H": 3}))
    numbers = {"D*H": 12}
    symbols.specialize(program, numbers)
    assert numbers["D"] == 4
    with pytest.raises(Violation) as refused:
        symbols.specialize(good(graph(source(["2*D"]), node("NEG"))), {"2*D": 7})
    assert refused.value.code == "AxisAlignmentMismatch"


def test_symbols_of_a_program() -> None:
    program = good(graph(source(["H*D", "N"]), node("PAD", pad=[[0, "p"], [0, 0]])))
    assert symbols.symbols(program) == ["D", "H", "N", "p"]
    assert ex.to_dim(ex.parse("D*H")) in program.main.params[0].type.shape


@pytest.mark.parametrize("name", ["seed_5_1_gemm", "seed_5_2_conv2d", "07_conv2d_view", "05_attention_full"])
def test_chosen_sizes_let_a_graph_run(name: str) -> None:
    program = good(sample(name))
    sizes = choose(program, {"N": 3})
    assert "N" not in sizes and all(0 < n < 40 for n in sizes.values())
    numbers = sizes | {"N": 3}
    symbols.specialize(clone(program), numbers)
    assert set(symbols.symbols(program)) <= set(numbers)
    if "conv" not in name:
        assert len(set(numbers.values())) == len(numbers)
