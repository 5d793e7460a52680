"""What ops fold to by declaration: when they do not, and how a folded constant is written."""

from __future__ import annotations

import numpy as np
import pytest

from ptir_tools.core.arrays import from_literal
from ptir_tools.core.builder import single_function
from ptir_tools.core.dtypes import F32
from ptir_tools.core.ir import Literal
from ptir_tools.core.types import tensor
from ptir_tools.dialects import load_dialect
from ptir_tools.passes import Floats, PassContext, run_pipeline
from ptir_tools.rewrite.fold import NOTHING, Materialize, ReplacedBy, try_fold
from ptir_tools.rewrite.rewriter import Rewriter
from tests.rewrite.test_rules import read

T = "tensor<f32, 3x3>"
PARAMS = f"%x: {T}, %s: tensor<f32, ?Nx3>, %i: tensor<si32, 2>, %p: tensor<i1, 3x3>"


def left(lines: str, result: str, pipeline: str = "fold,dce", **context: object) -> list[str]:
    """The ops that are left of `lines`, the last of which defines `%z`."""
    text = f"func @f({PARAMS}) -> {result} {{\n{lines.replace('; ', chr(10))}\nreturn %z\n}}"
    program = read(text)
    run_pipeline(program, pipeline, PassContext(expensive_checks=True, **context))  # type: ignore[arg-type]
    return [op.defn.short for op in program.main.body]


# Each is nearly one that folds.
STAY = [
    (f"%z = transpose(%x) perm[1, 0] -> {T}", T),
    (f"%z = abs(%x) -> {T}", T),
    (f"%a = cast(%x) -> tensor<f64, 3x3>; %z = cast(%a) -> {T}", T),
    ("%a = cast(%i) -> tensor<f32, 2>; %z = cast(%a) -> tensor<si32, 2>", "tensor<si32, 2>"),
    ("%a = cast(%i) -> tensor<ui64, 2>; %z = cast(%a) -> tensor<si32, 2>", "tensor<si32, 2>"),
    (f"%z = reduce_sum(%x) axes[] -> {T}", T),
    ("%z = reduce_max(%x) axes[] out_dtype[f64] -> tensor<f64, 3x3>", "tensor<f64, 3x3>"),
    ("%z = pad(%x) low[0, 0] high[0, 0] interior[1, 0] -> tensor<f32, 5x3>", "tensor<f32, 5x3>"),
    ("%z = tile(%s) repeats[2, 1] -> tensor<f32, ?Mx3>", "tensor<f32, ?Mx3>"),
    ("%z = concat(%x, %x) axis[0] -> tensor<f32, 6x3>", "tensor<f32, 6x3>"),
    (f"%a = neg(%x) -> {T}; %z = select(%p, %x, %a) -> {T}", T),
    (f"%a = rng_uniform() -> {T}; %b = rng_uniform() -> {T}"
     f"; %z = maximum(%a, %b) -> {T}", T),
    (f"%a = dynamic_slice(%x, %i) sizes[2, 2] -> tensor<f32, 2x2>; %b = neg(%x) -> {T}"
     f"; %z = dynamic_update_slice(%b, %a, %i) sizes[2, 2] -> {T}", T),
    (f"%z = stop_gradient(%x) -> {T}", T),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "result"), STAY, ids=[lines.rpartition("%z = ")[2].partition("(")[0] for lines, _ in STAY])
def test_what_only_looks_like_a_value_that_is_there_stays(lines: str, result: str) -> None:
    assert len(left(lines, result, floats=Floats.STRICT)) == lines.count(" = ")


PART = "tensor<f32, 2x2>"
READ = f"%a = dynamic_slice(%x, %i) sizes[2, 2] -> {PART}"


@pytest.mark.parametrize(
    ("lines", "result", "ops"),
    [
        (f"{READ}; %z = dynamic_update_slice(%x, %a, %i) sizes[2, 2] -> {T}", T, []),
        (f"{READ}; %n = neg(%a) -> {PART}; %z = dynamic_update_slice(%x, %n, %i) sizes[2, 2] -> {T}", T,
         ["dynamic_slice", "neg", "dynamic_update_slice"]),
        (f"{READ}; %j = neg(%i) -> tensor<si32, 2>; %z = dynamic_update_slice(%x, %a, %j) sizes[2, 2] -> {T}", T,
         ["dynamic_slice", "neg", "dynamic_update_slice"]),
        (f"%a = neg(%x) -> {T}; %z = dynamic_update_slice(%x, %a, %i) sizes[3, 3] -> {T}", T, ["neg"]),
        (f"%a = slice(%x) starts[0, 0] sizes[0, 3] -> tensor<f32, 0x3>"
         f"; %z = dynamic_update_slice(%x, %a, %i) sizes[0, 3] -> {T}", T, []),
    ],
)  # fmt: skip
def test_what_is_written_back_where_it_was_read(lines: str, result: str, ops: list[str]) -> None:
    assert left(lines, result, floats=Floats.STRICT) == ops


def test_try_fold_answers_what_the_specification_names() -> None:
    program = read(
        """func @f(%x: tensor<f32, 2>) -> (tensor<f32, 2>, tensor<f32, 2>, tensor<f32>) {
          %a = cast(%x) -> tensor<f32, 2>
          %b = exp(%x) -> tensor<f32, 2>
          %k = constant() value[dense<1.0>] -> tensor<f32>
          %c = neg(%k) -> tensor<f32>
          return %a, %b, %c
        }"""
    )
    rw = Rewriter(program.main, program.dialect)
    cast, exp, _, neg = program.main.body
    assert try_fold(cast, rw) == ReplacedBy(program.main.params[0])
    assert try_fold(exp, rw) is NOTHING
    found = try_fold(neg, rw)
    assert isinstance(found, Materialize) and found.literal.data == b"\x00\x00\x80\xbf"


INLINE = """func @f(%x: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
  %a = add(dense<1.0> : tensor<f32>, dense<2.0> : tensor<f32>) -> tensor<f32>
  %k = select(dense<true> : tensor<i1>, dense<5.0> : tensor<f32>, %x) -> tensor<f32>
  %b = sub(%x, %a) -> tensor<f32>
  %z = sub(%b, %k) -> tensor<f32>
  return %z, %KEPT
}"""


@pytest.mark.parametrize(("kept", "constants"), [("x", 0), ("a", 1), ("k", 1)])
def test_a_scalar_that_is_folded_from_inline_ones_is_inline_but_not_as_a_result(kept: str, constants: int) -> None:
    program = read(INLINE.replace("%KEPT", f"%{kept}"))
    run_pipeline(program, "canonicalize,dce", PassContext(expensive_checks=True))
    ops = program.main.body
    assert sum(op.defn.is_constant for op in ops) == constants
    assert sum(isinstance(x, Literal) for op in ops for x in op.operands) == 2 - constants
    assert not any(isinstance(x, Literal) for x in program.main.results)


def test_a_reshape_to_a_symbol_that_is_an_extent_of_its_operand_is_the_operand() -> None:
    lines = "%a = reshape(%s) new_shape[?M, 3] -> tensor<f32, ?Mx3>; %z = slice(%a) starts[0, 0] sizes[2, 3] -> tensor<f32, 2x3>"
    assert left(lines, "tensor<f32, 2x3>") == ["slice"]


CONSTANT = "dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]>"


@pytest.mark.parametrize("pipeline", ["fold,dce", "canonicalize,dce"])
@pytest.mark.parametrize(
    ("lines", "ops"),
    [
        ("%e = broadcast_to(dense<1e-5> : tensor<f32>) result_shape[3, 3] -> {T}; %z = add(%c, %e) -> {T}", ["constant"]),
        ("%e = broadcast_to(%r) result_shape[3, 3] -> {T}; %z = sub(%e, %c) -> {T}", ["constant"]),
        (
            "%e = broadcast_to(dense<2.0> : tensor<f32>) result_shape[3, 3] -> {T}"
            "; %z = dot_general(%c, %e) contract_lhs[1] contract_rhs[0] -> {T}",
            ["constant"],
        ),
        (  # nine numbers out of three and three
            "%e = broadcast_to(%r) result_shape[3, 3] -> {T}"
            "; %k = constant() value[dense<[[1.0], [2.0], [4.0]]>] -> tensor<f32, 3x1>"
            "; %f = broadcast_to(%k) result_shape[3, 3] -> {T}; %z = sub(%e, %f) -> {T}",
            ["constant", "broadcast_to", "constant", "broadcast_to", "sub"],
        ),
    ],
)
def test_broadcast_constants_are_computed_where_that_makes_none_bigger(lines: str, ops: list[str], pipeline: str) -> None:
    constants = f"%c = constant() value[{CONSTANT}] -> {T}; %r = constant() value[dense<[1.0, 2.0, 4.0]>] -> tensor<f32, 3>; "
    assert left(constants + lines.replace("{T}", T), T, pipeline, floats=Floats.STRICT) == ops


@pytest.mark.parametrize("count", [1, 2, 4])
def test_what_is_moved_out_of_equal_elements_is_written_once_where_it_is_several(count: int) -> None:
    program, b = single_function(load_dialect("ptir"))
    x = b.op("constant", value=Literal(tensor(F32, (4,)), np.float32(2).tobytes(), splat=True))
    b.results(b.op("slice", x, starts=(0,), sizes=(count,)))
    with Rewriter(program.main, program.dialect) as rw:
        found = try_fold(program.main.body[-1], rw)
    if count < 4:  # else it is the operand
        assert isinstance(found, Materialize) and found.literal.splat is (count > 1)
        assert from_literal(found.literal).tolist() == [2.0] * count


@pytest.mark.parametrize("name", sorted(d.short for d in load_dialect("ptir").ops.values() if d.algebra.parity == "even"))
def test_an_even_op_needs_no_negation(name: str) -> None:
    t = "tensor<f32, 3x3>"
    assert left(f"%n = neg(%x) -> {t}; %z = {name}(%n) -> {t}", t, "canonicalize") == [name]
