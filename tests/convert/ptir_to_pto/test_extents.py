"""Extents of 0 inside of programs, and symbols that scans and tiles go over: translated to PTO, run, held to NumPy."""

import json

import numpy as np
import pytest

from ptir_tools import read
from ptir_tools.convert import translate
from ptir_tools.convert.naming import extent_name
from ptir_tools.core import symbols
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, clone
from ptir_tools.core.violations import Violation
from ptir_tools.engines import run
from ptir_tools.engines.compare import check
from ptir_tools.engines.options import RunOptions
from ptir_tools.tools.inputs import Inputs
from tests.convert.ptir_to_pto.programs import TARGETS, agree, function, program, reread, single

M = "tensor<f32, 4x6>"
NONE = "%n = slice(%x) starts[0, 2] sizes[4, 0] -> tensor<f32, 4x0>"


def translated(before, target="a3"):
    after = translate(before, "pto", found := Diagnostics(before.source), Options(target=target))
    assert after is not None and not found.items, found.items
    return reread(after)


def result(after, **given):
    """What the program makes, in f64, of the arrays that are given."""
    bindings = {k: v for k, v in given.items() if isinstance(v, int)}
    arrays = Inputs(given=(), bindings=bindings, random=0).arrays(after)
    return list(run(after, {**arrays, **given}, RunOptions(engine="reference")).values())[-1]


CASES = {
    "sum": (("%s = reduce_sum(%n) axes[1] keepdims[true] -> tensor<f32, 4x1>",), 0.0),
    "product": (("%s = reduce_prod(%n) axes[1] keepdims[true] -> tensor<f32, 4x1>",), 1.0),
    "largest": (("%s = reduce_max(%n) axes[1] keepdims[true] -> tensor<f32, 4x1>",), -np.inf),
    "smallest": (("%s = reduce_min(%n) axes[1] keepdims[true] -> tensor<f32, 4x1>",), np.inf),
    "of what is computed": (
        ("%e = exp(%n) -> tensor<f32, 4x0>", "%s = reduce_sum(%e) axes[1] keepdims[true] -> tensor<f32, 4x1>"),
        0.0,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_reduction_of_nothing(case):
    lines, value = CASES[case]
    spread = f"%b = broadcast_to(%s) result_shape[4, 6] -> {M}"
    before = single(f"%x: {M}", M, NONE, *lines, spread, f"%y = add(%x, %b) -> {M}")
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    np.testing.assert_array_equal(result(translated(before), x=x), x + np.float32(value))


def test_a_product_over_nothing():
    lines = (NONE, "%t = transpose(%n) perm[1, 0] -> tensor<f32, 0x4>",
             "%p = dot_general(%n, %t) contract_lhs[1] contract_rhs[0] -> tensor<f32, 4x4>")  # fmt: skip
    before = single(f"%x: {M}, %z: tensor<f32, 4x4>", "tensor<f32, 4x4>", *lines, "%y = sub(%z, %p) -> tensor<f32, 4x4>")
    z = np.arange(16, dtype=np.float32).reshape(4, 4)
    np.testing.assert_array_equal(result(translated(before), z=z), z)


@pytest.mark.parametrize("parts", ["%n, %x", "%x, %n, %x", "%n, %x, %n"])
def test_nothing_next_to_something(parts):
    many = parts.count("%x")
    to = f"tensor<f32, 4x{6 * many}>"
    before = single(f"%x: {M}", to, NONE, f"%c = concat({parts}) axis[1] -> {to}", f"%y = neg(%c) -> {to}")
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    np.testing.assert_array_equal(result(translated(before), x=x), -np.concatenate([x] * many, 1))


def test_nothing_that_is_padded():
    line = "%p = pad(%n) low[0, 1] high[0, 2] interior[0, 0] pad_value[2.0] -> tensor<f32, 4x3>"
    before = single(f"%x: {M}", "tensor<f32, 4x3>", NONE, line, "%y = neg(%p) -> tensor<f32, 4x3>")
    np.testing.assert_array_equal(result(translated(before)), np.full((4, 3), -2, np.float32))


def test_nothing_that_is_written_into_something():
    line = f"%u = dynamic_update_slice(%x, %n, dense<0> : tensor<si64, 2>) sizes[4, 0] -> {M}"
    before = single(f"%x: {M}", M, NONE, line, f"%y = neg(%u) -> {M}")
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    np.testing.assert_array_equal(result(translated(before), x=x), -x)


TILED = {
    "rows": ("?Mx4", "1, 3", "?Mx12", lambda x: np.tile(x, (1, 3))),
    "columns": ("5x?M", "2, 1", "10x?M", lambda x: np.tile(x, (2, 1))),
    "both": ("?Mx5x?N", "1, 2, 1", "?Mx10x?N", lambda x: np.tile(x, (1, 2, 1))),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", TILED)
def test_tiles_of_open_extents(case, target):
    shape, repeats, to, expected = TILED[case]
    line = f"%t = tile(%x) repeats[{repeats}] -> tensor<f32, {to}>"
    before = single(f"%x: tensor<f32, {shape}>", f"tensor<f32, {to}>", line, f"%y = neg(%t) -> tensor<f32, {to}>")
    after = translated(before, target)
    for m, n in ((1, 1), (3, 70), (130, 9)):
        bound = {k: v for k, v in {"M": m, "N": n}.items() if f"?{k}" in shape}
        x = np.random.default_rng(m).standard_normal([bound.get(d[1:], 0) or int(d) for d in shape.split("x")]).astype(np.float32)
        np.testing.assert_array_equal(result(after, x=x, **bound), -expected(x))
        agree(before, after, bindings=bound)


SCAN = """func @main(%x: tensor<f32, ?Nx5>, %w: tensor<f32, ?Nx5>, %a: tensor<f32, 5>) -> (tensor<f32, ?Nx5>, tensor<f32, 5>) {
  %r = scan(%a, %x, %w) body_region[^r0] carry_count[1] scan_output_count[1] -> (tensor<f32, 5>, tensor<f32, ?Nx5>)
  return %r[1], %r[0]
}
region ^r0(%a: tensor<f32, 5>, %x: tensor<f32, 5>, %w: tensor<f32, 5>) -> (tensor<f32, 5>, tensor<f32, 5>) {
  %y = mul(%a, %w) -> tensor<f32, 5>
  %z = add(%y, %x) -> tensor<f32, 5>
  %e = neg(%z) -> tensor<f32, 5>
  return %z, %e
}"""


@pytest.mark.parametrize("target", TARGETS)
def test_a_scan_of_open_length(target):
    before = program(SCAN)
    after = translated(before, target)
    for n in (1, 2, 9):
        rng = np.random.default_rng(n)
        x, w, a = (rng.standard_normal(s).astype(np.float32) for s in ((n, 5), (n, 5), (5,)))
        carried, rows = a, []
        for k in range(n):
            carried = carried * w[k] + x[k]
            rows.append(-carried)
        arrays = Inputs(given=(), bindings={"N": n}, random=0).arrays(after)
        found = list(run(after, {**arrays, "x": x, "w": w, "a": a, "N": n}, RunOptions(engine="reference")).values())
        np.testing.assert_array_equal(found[-2], np.stack(rows))
        np.testing.assert_array_equal(found[-1], carried)
        agree(before, after, bindings={"N": n})


@pytest.mark.parametrize("target", TARGETS)
def test_rows_of_a_scan_are_open_too(target):
    before = program(SCAN.replace("x5>", "x?K>").replace("<f32, 5>", "<f32, ?K>"))
    agree(before, translated(before, target), bindings={"N": 3, "K": 70})


def test_what_is_tiled_is_reduced():
    lines = ("%t = tile(%x) repeats[1, 2] -> tensor<f32, ?Mx8>", "%y = reduce_sum(%t) axes[1] -> tensor<f32, ?M>")
    before = function("%x: tensor<f32, ?Mx4>", "tensor<f32, ?M>", *lines, returns="%y")
    agree(before, translated(before), bindings={"M": 33})


EXPRESSIONS = {
    "joined": ("2*N", ("RESHAPE", {"result_shape": ["6*N"]})),
    "padded": ("N+1", ("PAD", {"pad": [[0, 0], [1, 1]], "value": 2})),
    "turned over": ("2*N+1", ("FLIP", {"axes": [1]})),
    "turned over, less": ("9-N", ("FLIP", {"axes": [1]})),
    "squared": (
        "N", ("EXPAND", {"result_shape": ["N", 3, "N"]}), ("RESHAPE", {"result_shape": ["3*N*N"]}), ("FLIP", {"axes": [0]}),
    ),
    "by a step": ("N+1", ("SHRINK", {"lo": [0, 0], "hi": [3, "N+1"], "step": [1, 3]})),
    "by steps": ("2*N", ("PERMUTE", {"perm": [1, 0]}), ("SHRINK", {"lo": [0, 0], "hi": ["2*N", 3], "step": [3, 2]})),
    "by a step, and cut": ("2*N", ("SHRINK", {"lo": [1, 0], "hi": [3, "2*N"], "step": [1, 3]})),
    "by half of it": (
        "2*N", ("VIEW", {"result_shape": [3, "2*N"], "index_map": {"axes": ["i", "j"], "map": ["i", "j//N + j%N"]}}),
    ),
}  # fmt: skip


def expression(case):
    """The graph of a case."""
    extent, *nodes = EXPRESSIONS[case]
    given = {"tensor_id": "x", "dtype": "fp32", "shape": [3, extent]}
    uops = [{"id": "n0", "uop": "INPUT", "arg": given}]
    uops += [{"id": f"n{k + 1}", "uop": uop, "src": [f"n{k}"], "arg": arg} for k, (uop, arg) in enumerate(nodes)]
    return read(json.dumps({"uops": uops}))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", EXPRESSIONS)
def test_extents_that_are_expressions(case, target):
    before = expression(case)
    after = translated(before, target)
    for n in (1, 5, 70) if "9" not in EXPRESSIONS[case][0] else (1, 5):
        agree(before, after, bindings={"N": n})


@pytest.mark.parametrize("text", ["2*N", "N+1", "N-1", "9-N", "(N+1)//2", "5*K*N+5", "(K+2*N)%3-1", "N"])
def test_the_name_of_a_parameter_that_is_an_expression(text):
    assert extent_name(text).isidentifier()


@pytest.mark.parametrize("case", EXPRESSIONS)
def test_a_run_derives_extents_from_the_symbols_in_them(case):
    """From `--bind N=2`, and from the shape of an input, without a number for each parameter."""
    before, n = expression(case), 2
    after = translated(before)
    rows = before.main.params[0].type
    shape = symbols.substitute(rows, symbols.lookup_in(before, {"N": n})).shape
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    (expected,) = run(before, {"x": x}, RunOptions(engine="reference")).values()
    bound = reread(after)
    symbols.bind(bound, {"N": n})  # as the command line does, before it makes inputs
    for program_ in (after, bound):
        arrays = Inputs(given=(), bindings={"N": n}, random=0).arrays(program_)
        made = run(program_, {**arrays, "x": x}, RunOptions(engine="reference", bindings={"N": n}))
        np.testing.assert_array_equal(list(made.values())[-1], expected)


def test_a_kernel_of_open_extents_is_checked():
    """Its random inputs that are extents are these extents."""
    after = translated(expression("padded"))
    assert not check(after, clone(after), runs=1).diverged


def test_what_follows_from_a_shape():
    after = translated(expression("joined"))
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for given, said in (((("x", str(x.tolist())),), {}), ((), {"_2_times_N": 4})):
        arrays = Inputs(given=given, bindings=said, random=0).arrays(after)
        assert {name: int(v) for name, v in arrays.items() if not v.shape} == {"_2_times_N": 4, "_6_times_N": 12}
    with pytest.raises(Violation, match="no integer N makes 2\\*N equal to 3"):
        Inputs(given=(), bindings={"_2_times_N": 3}, random=0).arrays(after)
    with pytest.raises(Violation, match="_2_times_N is 3, but 2\\*N is 4"):
        Inputs(given=(), bindings={"_2_times_N": 3, "N": 2}, random=0).arrays(after)
    with pytest.raises(Violation, match="the extent _3_times_N_times_N, which is 3\\*N\\*N, would be 48000000000000000000"):
        Inputs(given=(), bindings={"N": 4 * 10**9}, random=0).arrays(translated(expression("squared")))
