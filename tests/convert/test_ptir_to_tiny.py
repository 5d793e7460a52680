"""PTIR to Tiny, proven by running both sides."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptir_tools.convert import translate
from ptir_tools.core.arrays import from_literal, numpy_dtype
from ptir_tools.core.diagnostics import Diagnostics, Severity
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.source import Source
from ptir_tools.core.verify import verify
from ptir_tools.dialects import load_format
from ptir_tools.engines import RunOptions
from ptir_tools.engines import run as run_on
from tests.convert.translations import translated
from tests.tiny.graphs import codes, good, inputs_of, printed, random_text, run


def ptir(text: str) -> Program:
    """The verified program of a PTIR text."""
    diagnostics = Diagnostics(Source("p.ptir", text))
    program = load_format("ptir").read(diagnostics.source, diagnostics, Options())
    assert program is not None and verify(program, diagnostics), [d.message for d in diagnostics]
    return program


def to_tiny(program: Program) -> tuple[Program | None, list[str]]:
    """The translation, which strict accepts and which reads back from its text, and the errors."""
    diagnostics = Diagnostics(program.source)
    after = translate(program, "tiny", diagnostics)
    errors = [d.code for d in diagnostics if d.severity is Severity.ERROR]
    if after is not None:
        assert codes(printed(after), "strict") == []
        after = good(printed(after), "strict")
    return after, errors


HEAD = "func @main(%x: tensor<{d}, 3x4>, %y: tensor<{d}, 3x4>, %p: tensor<i1, 3x4>, %w: tensor<{d}, 2x4x5>) -> tensor<{r}> {{\n"
ONE = "%z = {op} -> tensor<{r}>\n  return %z\n}}\n"
OPS = [
    ("neg(%x)", "{d}, 3x4"), ("add(%x, %y)", "{d}, 3x4"), ("sub(%x, %y)", "{d}, 3x4"), ("mul(%x, %y)", "{d}, 3x4"),
    ("maximum(%x, %y)", "{d}, 3x4"), ("minimum(%x, %y)", "{d}, 3x4"), ("abs(%x)", "{d}, 3x4"), ("select(%p, %x, %y)", "{d}, 3x4"),
    ("cast(%x)", "f16, 3x4"), ("cast(%x)", "i1, 3x4"), ("clamp(%x, %y, %x)", "{d}, 3x4"), ("stop_gradient(%x)", "{d}, 3x4"),
    ("reduce_sum(%x) axes[1]", "{d}, 3"), ("reduce_max(%x) axes[-2] keepdims[true]", "{d}, 1x4"),
    ("reduce_min(%x) axes[0, 1]", "{d}"),
    ("reduce_sum(%x) axes[0] keepdims[true]", "{d}, 1x4"), ("reshape(%x) new_shape[2, -1]", "{d}, 2x6"),
    ("transpose(%w) perm[2, 0, -2]", "{d}, 5x2x4"), ("broadcast_to(%x) result_shape[2, 3, 4]", "{d}, 2x3x4"),
    ("slice(%w) starts[0, 1, 2] sizes[2, 2, 3]", "{d}, 2x2x3"), ("pad(%x) low[1, 0] high[0, 2] pad_value[3]", "{d}, 4x6"),
    ("tile(%x) repeats[2, 3]", "{d}, 6x12"), ("dot_general(%x, %w) contract_lhs[1] contract_rhs[1]", "{d}, 3x2x5"),
    ("dot_general(%x, %y) contract_lhs[-1] contract_rhs[1] batch_lhs[0] batch_rhs[0]", "{d}, 3"),
    ("dot_general(%w, %w) contract_lhs[] contract_rhs[] batch_lhs[0] batch_rhs[0]", "{d}, 2x4x5x4x5"),
]  # fmt: skip
FLOAT_OPS = [
    ("rsqrt(%x)", "{d}, 3x4"), ("reciprocal(%x)", "{d}, 3x4"), ("div(%x, %y)", "{d}, 3x4"), ("exp(%x)", "{d}, 3x4"),
    ("reduce_sum(%x) axes[1] accum_dtype[f32] out_dtype[f32]", "f32, 3"),
    ("dot_general(%x, %w) contract_lhs[1] contract_rhs[1] out_dtype[f32]", "f32, 3x2x5"),
    ("add(%x, dense<0.5> : tensor<{d}, 3x4>)", "{d}, 3x4"), ("div(dense<inf> : tensor<{d}, 3x4>, %x)", "{d}, 3x4"),
]  # fmt: skip
CASES = [(op, r, d) for d in ("f32", "f16", "bf16", "si32") for op, r in OPS]
CASES += [(op, r, d) for d in ("f32", "f16", "bf16") for op, r in FLOAT_OPS]


@pytest.mark.parametrize(("op", "result", "dtype"), CASES)
def test_ops(op: str, result: str, dtype: str) -> None:
    op = op if dtype == "si32" else op.replace("pad_value[3]", "pad_value[3.0]")
    before = ptir(HEAD.format(d=dtype, r=result.format(d=dtype)) + ONE.format(op=op.format(d=dtype), r=result.format(d=dtype)))
    after, errors = to_tiny(before)
    assert after is not None and not errors
    inputs = inputs_of(before, 1)
    with np.errstate(all="ignore"):
        (a,), (b,) = run(before, inputs), run(after, inputs)
    assert a.dtype == b.dtype and a.shape == b.shape
    least = {"f16": 2**-10, "bf16": 2**-7}.get(dtype, 2**-22) if a.dtype.kind not in "ib" else 0
    np.testing.assert_allclose(b.astype(np.float64), a.astype(np.float64), rtol=least, atol=least)


@pytest.mark.parametrize(("dims", "swap"), [("0, 1", False), ("1, 0", True)])
@pytest.mark.parametrize("dtype", ["f32", "si32"])
def test_windows_are_scattered(dtype: str, dims: str, swap: bool) -> None:
    """Windows narrower than the operand, at index vectors of two components, some at one place."""
    made = translated(ptir(
        f"func @main(%x: tensor<{dtype}, 4x5x2>, %i: tensor<si32, 3x2>, %u: tensor<{dtype}, 3x2x1>)"
        f" -> tensor<{dtype}, 4x5x2> {{\n  %y = scatter_add(%x, %i, %u) update_window_dims[1, 2] inserted_window_dims[0] "
        f"scatter_dims_to_operand_dims[{dims}] index_vector_dim[1] -> tensor<{dtype}, 4x5x2>\n  return %y\n}}\n"
    ), "tiny")  # fmt: skip
    assert made.program is not None and not made.errors
    after = made.program
    x = np.arange(40, dtype=numpy_dtype(after.main.params[0].type.dtype)).reshape(4, 5, 2)
    u = (np.arange(6) * 100).astype(x.dtype).reshape(3, 2, 1)
    places, want = np.array([[3, 1], [0, 3], [3, 1]], np.int32), x.copy()
    for (row, column), window in zip(places, u, strict=True):
        want[row, column : column + 2, 0:1] += window
    known = {"x": x, "i": places[:, ::-1].copy() if swap else places, "u": u}
    known |= {name: from_literal(value) for name, value in made.constants.items()}
    (found,) = run(after, [known[name] for name in after.main.attrs["input_names"]])
    assert np.array_equal(found, want)


@pytest.mark.parametrize(("kind", "more"), [("max", ""), ("min", ""), ("sum", " accum_dtype[si32]")])
@pytest.mark.parametrize(("dtype", "low", "high"), [("si8", -128, 127), ("ui8", 0, 255), ("si16", -(2**15), 2**15 - 1)])
def test_windows_of_narrow_integers(dtype: str, low: int, high: int, kind: str, more: str) -> None:
    """Padding is neutral in their own range, and a sum saturates in it."""
    after, errors = to_tiny(ptir(
        f"func @main(%x: tensor<{dtype}, 6>) -> tensor<{dtype}, 4> {{\n  %y = reduce_window(%x) window_dims[2] strides[2] "
        f"padding[[1, 1]] base_dilation[1] window_dilation[1] reduce[{kind}]{more} -> tensor<{dtype}, 4>\n  return %y\n}}\n"
    ))  # fmt: skip
    assert after is not None and not errors
    x = [low, low, 3, high, high, high]
    pairs = [[x[0]], x[1:3], x[3:5], [x[5]]]
    want = [min(max({"max": max, "min": min, "sum": sum}[kind](p), low), high) for p in pairs]
    assert run(after, [np.array(x, np.int32)])[0].tolist() == want


def test_a_constant_that_repeats_itself_is_kept_once() -> None:
    made = translated(ptir(
        "func @f(%x: tensor<f32, 50x2x4x3>) -> tensor<f32, 50x2x4x3> {\n  %c = constant() value[dense<[[1.0, -0.0, 0.0], "
        "[2.0, 2.0, 2.0]]>] -> tensor<f32, 2x3>\n  %d = reshape(%c) new_shape[2, 1, 3] -> tensor<f32, 2x1x3>\n"
        "  %b = broadcast_to(%d) result_shape[50, 2, 4, 3] -> tensor<f32, 50x2x4x3>\n"
        "  %y = add(%x, %b) -> tensor<f32, 50x2x4x3>\n  return %y\n}\n"
    ), "tiny")  # fmt: skip
    assert made.program is not None and [x.type.static_shape for x in made.constants.values()] == [(2, 3)]
    c = np.array([[1, -0.0, 0], [2, 2, 2]], np.float32)
    x = np.zeros((50, 2, 4, 3), np.float32)
    (found,) = run(made.program, [x, *map(from_literal, made.constants.values())])
    assert np.array_equal(found, x + c[None, :, None, :])


def test_relu_comes_back() -> None:
    body = "%c = compare_gt(%x, dense<0.0> : tensor<f32, 3x4>) -> tensor<i1, 3x4>\n"
    body += "%z = select(%c, %x, dense<0.0> : tensor<f32, 3x4>) -> tensor<f32, 3x4>\nreturn %z\n}\n"
    after, _ = to_tiny(ptir(HEAD.format(d="f32", r="f32, 3x4") + body))
    assert after is not None and [op.defn.short for op in after.main.body] == ["RELU"]


def test_everything_that_cannot_be_said_is_told_at_once() -> None:
    body = """%a = rng_normal() -> tensor<f32, 3x4>
    %b = rng_uniform() -> tensor<f32, 3x4>
    %c = cast(%x) -> tensor<f64, 3x4>
    %d = constant() value[dense<[1.0, 2.0, 3.0, 4.0]>] -> tensor<f32, 4>
    %e = broadcast_to(%d) result_shape[3, 4] -> tensor<f32, 3x4>
    %f = cast(%c) -> tensor<f32, 3x4>
    %g = add(%e, %x) -> tensor<f32, 3x4>
    %unused = rng_normal() -> tensor<f32, 3x4>
    %h = add(%a, %g) -> tensor<f32, 3x4>
    %i = add(%f, %h) -> tensor<f32, 3x4>
    %z = add(%b, %i) -> tensor<f32, 3x4>
    return %z
    }
    """
    after, errors = to_tiny(ptir(HEAD.format(d="f32", r="f32, 3x4") + body))
    assert after is None and errors == ["NotTranslatable"] * 4


def test_names_and_symbols_carry_over() -> None:
    after, _ = to_tiny(ptir("func @f(%a: tensor<f32, ?N>) -> tensor<f32, ?N> {\n%1 = neg(%a) -> tensor<f32, ?N>\nreturn %1\n}\n"))
    assert after is not None and after.main.attrs["input_names"] == ["a"]
    assert str(after.main.params[0].type.shape[0]) == "?N" and [v.name for v in after.main.results] == ["1"]


SPECIAL = [0.0, -0.0, 1.0, -1.0, 1e-45, -1e-45, 65504.0, -65504.0, 3e38, -3e38, np.inf, -np.inf, np.nan]
INTEGERS = [0, 1, -1, 7, 2**31 - 1, -(2**31), 2**30, -(2**30) - 1]


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "si32"])
@pytest.mark.parametrize(
    ("kind", "wanted"),
    [("gt", np.greater), ("ge", np.greater_equal), ("lt", np.less), ("le", np.less_equal), ("eq", np.equal),
     ("ne", np.not_equal)],
)  # fmt: skip
def test_comparisons(dtype: str, kind: str, wanted: np.ufunc) -> None:
    """Every pair of special values: NaN, infinities, zeros, subnormals, differences that overflow or wrap."""
    values = INTEGERS if dtype == "si32" else SPECIAL
    n = len(values) ** 2
    t = f"tensor<{dtype}, {n}>"
    result = f"%r = compare_{kind}(%x, %y) -> tensor<i1, {n}>\nreturn %r\n"
    after, errors = to_tiny(ptir(f"func @main(%x: {t}, %y: {t}) -> tensor<i1, {n}> {{\n{result}}}\n"))
    assert after is not None, errors
    with np.errstate(all="ignore"):
        one = np.array(values).astype(numpy_dtype(after.main.params[0].type.dtype))
        x, y = (v.reshape(-1) for v in np.meshgrid(one, one))
        (found,) = run(after, [x, y])
        np.testing.assert_array_equal(found, wanted(x.astype(np.float64), y.astype(np.float64)))


@pytest.mark.parametrize(
    ("op", "oracle", "values"),
    [
        ("log", np.log, [3e38, 1e30, 2.0**64, 2.0**63.5, 1e10, 3.0, 1.0, 0.7, 1e-10, 2.0**-64, 1e-30, 1.2e-38]),
        ("tanh", np.tanh, [0.0, 1e-3, 0.3, 0.55, 0.56, 1.0, 5.0, 9.0, 20.0, 1e30]),
        ("exp", np.exp, [-100.0, -87.0, -1.0, -1e-4, 0.0, 1e-4, 1.0, 20.0, 88.0]),
    ],
)
def test_series_are_right_over_the_whole_range(op: str, oracle: np.ufunc, values: list[float]) -> None:
    """What Tiny has no op for, within a few units of the last place of float64's answer."""
    t = f"tensor<f32, {len(values)}>"
    after, errors = to_tiny(ptir(f"func @main(%x: {t}) -> {t} {{\n%r = {op}(%x) -> {t}\nreturn %r\n}}\n"))
    assert after is not None, errors
    x = np.array(values, np.float32)
    (found,) = run(after, [x])
    np.testing.assert_allclose(found, oracle(x.astype(np.float64)), rtol=2e-6, atol=1e-44)


def test_constants_are_computed() -> None:
    """A causal mask of iotas, in a dtype that Tiny has not, is one constant; what is then one number is an immediate."""
    text = """func @main(%s: tensor<f32, 3x3>) -> tensor<f32, 3x3> {
      %i = iota() axis[0] -> tensor<si64, 3x3>
      %j = iota() axis[1] -> tensor<si64, 3x3>
      %m = compare_le(%j, %i) -> tensor<i1, 3x3>
      %e = erf(dense<0.0> : tensor<f32, 3x3>) -> tensor<f32, 3x3>
      %o = select(%m, %s, %e) -> tensor<f32, 3x3>
      return %o
    }
    """
    constants: dict = {}
    diagnostics = Diagnostics()
    after = translate(ptir(text), "tiny", diagnostics, Options(constants=constants))
    assert after is not None and [op.defn.short for op in after.main.body] == ["WHERE"]
    (mask,) = (from_literal(x) for x in constants.values())
    np.testing.assert_array_equal(mask, np.tri(3, dtype=bool))
    assert to_tiny(ptir(text))[1] == ["NotTranslatable"]  # without a place for the mask


def test_a_literal_as_a_result() -> None:
    head = "func @main(%p: tensor<f32>) -> tensor<{0}, 2> {{ return dense<[1, 2]> : tensor<{0}, 2> }}\n"
    assert to_tiny(ptir(head.format("si64")))[1] == ["NotTranslatable"]
    constants: dict = {}
    assert translate(ptir(head.format("si32")), "tiny", Diagnostics(), Options(constants=constants)) is not None
    assert [from_literal(x).tolist() for x in constants.values()] == [[1, 2]]
    wide = ptir(head.format("si64").replace("[1, 2]", "[1, 2147483648]"))
    assert translate(wide, "tiny", Diagnostics(), Options(constants={})) is None


@given(st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_there_and_back(seed: int) -> None:
    """Tiny to PTIR to Tiny, where the way back exists."""
    before = good(random_text(seed, 4))
    diagnostics = Diagnostics()
    middle = translate(before, "ptir", diagnostics)
    assert middle is not None and verify(middle, diagnostics)
    after, errors = to_tiny(middle)
    if after is None:
        assert errors and set(errors) == {"NotTranslatable"}
        return
    inputs = inputs_of(before, seed, special=True)
    with np.errstate(all="ignore"):
        for a, b in zip(run(before, inputs), run(after, inputs), strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a.astype(np.float64), b.astype(np.float64))


def test_a_tuple_of_constants_is_as_many_results() -> None:
    """Each element of a tuple that is returned is a node, a constant too, and as often as it is returned."""
    text = """program @main (spec_version = ptir.v0.4) {
      func @main(%x: tensor<f32, 2>, %p: tensor<i1>) -> ((tensor<f32, 2>, tensor<f32, 2>), tensor<f32, 2>) {
        %t = cond(%p, %x) true_region[^r] false_region[^r] -> (tensor<f32, 2>, tensor<f32, 2>)
        return %t, %t[1]
      }
      region ^r(%x: tensor<f32, 2>) -> (tensor<f32, 2>, tensor<f32, 2>) {
        %c = constant() value[dense<[1.0, 2.0]>] -> tensor<f32, 2>
        return %c, %c
      }
    }
    """
    made = translated(ptir(text), "tiny")
    assert made.program is not None, made.errors
    known = {"x": np.zeros(2, np.float32), "p": np.array(True)} | {k: from_literal(v) for k, v in made.constants.items()}
    found = run(made.program, [known[name] for name in made.program.main.attrs["input_names"]])
    assert [x.tolist() for x in found] == [[1, 2]] * 3


ARITHMETIC = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "mod": lambda a, b: a % b,
    "div": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "rem": lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1),
}  # fmt: skip


@pytest.mark.parametrize("op", ARITHMETIC)
@pytest.mark.parametrize("dtype", ["si32", "si8", "ui8", "si16", "ui16"])
def test_integers_wrap_and_divide_as_in_ptir(op: str, dtype: str) -> None:
    """Held to Python's integers, at the ends of the range and between."""
    bits, signed = int(dtype[2:]), dtype[0] == "s"
    low = -(1 << bits - 1) if signed else 0
    top = low + (1 << bits) - 1
    rng = np.random.default_rng(bits)
    near = [low, low + 1, -1, 0, 1, 2, 3, 7, 46341, (1 << 24) + 1, -(1 << 24) - 1, 1 << 30, top - 1, top]
    some = [v for v in near if low <= v <= top] + rng.integers(low, top + 1, 60).tolist()
    pairs = [(a, b) for a in some for b in some if b or op not in ("div", "rem", "mod")]
    t = f"tensor<{dtype}, {len(pairs)}>"
    after, errors = to_tiny(ptir(f"func @main(%x: {t}, %y: {t}) -> {t} {{\n%r = {op}(%x, %y) -> {t}\nreturn %r\n}}\n"))
    assert after is not None, errors
    (found,) = run(after, [np.array(side, np.int32) for side in zip(*pairs, strict=True)])
    want = [(ARITHMETIC[op](a, b) - low) % (1 << bits) + low for a, b in pairs]
    assert found.tolist() == want


@pytest.mark.parametrize("dtype", ["si8", "ui16", "si32"])
@pytest.mark.parametrize("op", ["rem", "mod"])
def test_a_remainder_by_zero_is_the_dividend(op: str, dtype: str) -> None:
    """PTIR stops there; docs/translation.md says what Tiny gives."""
    t = f"tensor<{dtype}, 2>"
    after, errors = to_tiny(ptir(f"func @main(%x: {t}, %y: {t}) -> {t} {{\n%r = {op}(%x, %y) -> {t}\nreturn %r\n}}\n"))
    assert after is not None, errors
    (found,) = run(after, [np.array([5, 7], np.int32), np.array([0, 4], np.int32)])
    assert found.tolist() == [5, 3]


@pytest.mark.parametrize(
    ("shape", "k", "fits"), [("4096", 2, True), ("4097", 2, False), ("2x2897", 3, False), ("16x1024", 3, True)]
)
def test_so_many_comparisons_are_written_for_top_k_and_no_more(shape: str, k: int, fits: bool) -> None:
    """2^24 at most: each element of a row with each other."""
    kept = "x".join([*shape.split("x")[:-1], str(k)])
    types = f"(tensor<f32, {kept}>, tensor<si32, {kept}>)"
    text = f"func @main(%x: tensor<f32, {shape}>) -> tensor<f32, {kept}> {{\n"
    text += f"  %t = top_k(%x) k[{k}] -> {types}\n  return %t[0]\n}}\n"
    after = translated(ptir(text), "tiny")
    assert (after.program is not None) is fits
    assert {code for code, _ in after.errors} == (set() if fits else {"NotTranslatable"})


# What is computed, and the most nodes: a chain of sums and products is wrapped once, at its end.
CHAINS = {
    "sum": ("%r = add(%x, %y) -> T", lambda x, y: x + y, 7),
    "chain": ("%a = add(%x, %y) -> T\n%b = mul(%a, %x) -> T\n%c = sub(%b, %y) -> T\n%r = mul(%c, %c) -> T",
              lambda x, y: ((x + y) * x - y) ** 2, 10),
    "read twice": ("%a = add(%x, %y) -> T\n%b = mul(%a, %x) -> T\n%m = maximum(%a, %b) -> T\n%r = sub(%m, %b) -> T", None, 22),
    "in range": ("%a = rem(%x, dense<3> : T) -> T\n%r = add(%a, %a) -> T", None, 6),
    "beyond, and in range": ("%a = add(%x, %y) -> T\n%b = sub(%a, %y) -> T\n%r = mul(%b, dense<0> : T) -> T",
                             lambda x, y: 0 * x, 9),
    "wide again": ("%a = mul(%x, %y) -> T\n%w = cast(%a) -> tensor<si32, N>\n%z = add(%w, %w) -> tensor<si32, N>\n"
                   "%r = cast(%z) -> T", None, 12),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["si4", "ui4", "si8", "ui8", "si16", "ui16"])
@pytest.mark.parametrize("name", CHAINS)
def test_narrow_integers_are_wrapped_where_it_shows(name: str, dtype: str) -> None:
    """All pairs of 8 bits and less; the ends and random numbers of 16 bits. Expected are Python's integers, wrapped; and the
    reference engine's, which wraps after each op."""
    body, function, most = CHAINS[name]
    bits, signed = int(dtype[2:]), dtype[0] == "s"
    low = -(1 << bits - 1) if signed else 0
    numbers = np.arange(low, low + (1 << bits))
    if bits == 16:
        numbers = np.unique(
            [*numbers[:4], *numbers[-4:], *np.arange(-3, 4).clip(low), *np.random.default_rng(0).choice(numbers, 200)]
        )
    x, y = (a.reshape(-1) for a in np.meshgrid(numbers, numbers))
    t = f"tensor<{dtype}, {x.size}>"
    source = f"func @f(%x: {t}, %y: {t}) -> {t} {{\n{body.replace('T', t).replace('N', str(x.size))}\nreturn %r\n}}\n"
    before = ptir(source)
    graph, errors = to_tiny(before)
    assert graph is not None and len(graph.main.body) <= most, errors or printed(graph)
    inputs = [a.astype(numpy_dtype(before.main.params[0].type.dtype)) for a in (x, y)]
    (expected,) = run_on(before, inputs, RunOptions(engine="reference")).values()
    for engine in ("reference", "native"):
        (found,) = run_on(graph, [x.astype(np.int32), y.astype(np.int32)], RunOptions(engine=engine)).values()
        np.testing.assert_array_equal(found, expected.astype(np.int32))
    if function is not None:
        exact = [function(a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
        np.testing.assert_array_equal(found, [(v - low) % (1 << bits) + low for v in exact])
