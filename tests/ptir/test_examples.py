"""Patterns by example: what counts when a kernel is sought, and what a match tells."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ptir_tools.core.diagnostics import Rejected
from ptir_tools.dialects.ptir.kernels.examples import Example, Match
from ptir_tools.rewrite.driver import GreedyConfig, apply_patterns_and_fold_greedily
from ptir_tools.rewrite.pattern_set import PatternSet
from ptir_tools.rewrite.patterns import Effect
from ptir_tools.rewrite.rewriter import Rewriter
from tests.conftest import ROOT
from tests.rewrite.test_rules import read, write

SCALED = """func @scaled(%x: tensor<f32, 2x3>, %y: tensor<f32, 2x3>, %k: tensor<f32>) -> tensor<f32, 2x3> {
  %ks = broadcast_to(%k) result_shape[2, 3] -> tensor<f32, 2x3>
  %s = mul(%y, %ks) -> tensor<f32, 2x3>
  %z = add(%x, %s) -> tensor<f32, 2x3>
  return %z
}
"""


def found(kernel: str, program: str, **options: tuple[str, ...]) -> list[Match]:
    """The matches of a kernel in a program."""
    p = read(program)
    (example,) = Example.read(kernel, **options).values()
    return list(example.matches(Rewriter(p.main, p.dialect)))


def f(*lines: str, params: str = "%a: tensor<f16, 4>, %b: tensor<f16, 4>", ret: str = "tensor<f16, 4>") -> str:
    return f"func @f({params}) -> {ret} {{\n" + "\n".join(f"  {line}" for line in lines) + "\n}\n"


HALF = "%k = broadcast_to(dense<0.5> : tensor<f16>) result_shape[4] -> tensor<f16, 4>"


def test_types_do_not_count_and_commutative_operands_are_tried_in_both_orders() -> None:
    (match,) = found(SCALED, f(HALF, "%m = mul(%k, %b) -> tensor<f16, 4>", "%s = add(%m, %a) -> tensor<f16, 4>", "return %s"),
                     skip=("broadcast_to",))  # fmt: skip
    assert [x.name for x in (match.inputs["x"], match.inputs["y"])] == ["a", "b"]  # type: ignore[union-attr]
    assert match.number("k") == 0.5 and match.ops["s"].result.name == "m" and match.root.result.name == "s"
    assert match.closed and {op.result.name for op in match.interior} == {"m"}


def test_kinds_of_ops_count() -> None:
    lines = (HALF, "%m = mul(%k, %b) -> tensor<f16, 4>", "%s = sub(%m, %a) -> tensor<f16, 4>", "return %s")
    assert not found(SCALED, f(*lines), skip=("broadcast_to",))
    window = f("%y = reduce_window(%a) window_dims[2] strides[1] padding[[0, 0]] base_dilation[1] window_dilation[1] reduce[max]"
               " -> tensor<f32, 3>", "return %y", params="%a: tensor<f32, 4>", ret="tensor<f32, 3>")  # fmt: skip
    assert len(found(window, window)) == 1 and not found(window, window.replace("reduce[max]", "reduce[sum]"))
    call = f('%y = custom_call(%a) target["a.b.v1"] -> tensor<f16, 4>', "return %y")
    assert len(found(call, call)) == 1 and not found(call, call.replace("a.b.v1", "a.c.v1"))


def test_a_number_is_no_tensor_and_the_same_number_everywhere() -> None:
    lines = ("%m = mul(%a, %b) -> tensor<f16, 4>", "%s = add(%m, %a) -> tensor<f16, 4>", "return %s")
    assert not found(SCALED, f(*lines), skip=("broadcast_to",))
    twice = SCALED.replace("add(%x, %s)", "add(%s, %ks)").replace("%x: tensor<f32, 2x3>, ", "")
    other = "%l = constant() value[dense<VALUE>] -> tensor<f16, 4>"
    lines = (HALF, other, "%m = mul(%b, %k) -> tensor<f16, 4>", "%s = add(%m, %l) -> tensor<f16, 4>", "return %s")
    assert len(found(twice, f(*lines).replace("VALUE", "0.5"), skip=("broadcast_to",))) == 1
    assert not found(twice, f(*lines).replace("VALUE", "0.25"), skip=("broadcast_to",))


def test_a_parameter_is_one_operand_everywhere() -> None:
    square = "func @square(%x: tensor<f32, 4>) -> tensor<f32, 4> {\n  %y = mul(%x, %x) -> tensor<f32, 4>\n  return %y\n}\n"
    assert len(found(square, f("%m = mul(%a, %a) -> tensor<f16, 4>", "return %m"))) == 1
    assert not found(square, f("%m = mul(%a, %b) -> tensor<f16, 4>", "return %m"))
    top = f("%t = top_k(%a) k[4] -> (tensor<f16, 4>, tensor<si32, 4>)", "%m = mul(%t[0], %t[0]) -> tensor<f16, 4>", "return %m")
    assert len(found(square, top)) == 1


def test_constants_are_equal_in_the_narrower_dtype() -> None:
    kernel = f("%k = constant() value[dense<0.1>] -> tensor<f32, 4>", "%y = mul(%a, %k) -> tensor<f32, 4>", "return %y",
               params="%a: tensor<f32, 4>", ret="tensor<f32, 4>")  # fmt: skip
    assert len(found(kernel, kernel.replace("f32", "bf16"))) == 1 and len(found(kernel, kernel.replace("f32", "f64"))) == 1
    assert not found(kernel, kernel.replace("0.1", "0.1001"))
    vector = kernel.replace("dense<0.1>", "dense<[0.1, 0.2, 0.3, 0.4]>")
    assert len(found(vector, vector)) == 1 and not found(vector, vector.replace("0.4", "0.5"))


@pytest.mark.parametrize("skip", [(), ("reshape", "transpose")])
def test_optional_ops_are_skipped_in_program_and_kernel(skip: tuple[str, ...]) -> None:
    plain = f("%e = exp(%a) -> tensor<f16, 4>", "%n = neg(%e) -> tensor<f16, 4>", "return %n", params="%a: tensor<f16, 4>")
    moved = f("%e = exp(%a) -> tensor<f16, 4>", "%r = reshape(%e) new_shape[2, 2] -> tensor<f16, 2x2>",
              "%t = transpose(%r) perm[1, 0] -> tensor<f16, 2x2>", "%n = neg(%t) -> tensor<f16, 2x2>", "return %n",
              params="%a: tensor<f16, 4>", ret="tensor<f16, 2x2>")  # fmt: skip
    for kernel, program in ((plain, moved), (moved, plain)):
        assert len(found(kernel, program, skip=skip)) == bool(skip)
    (match,) = found(moved, moved)
    assert {op.defn.short for op in match.interior} == {"exp", "reshape", "transpose"}


def test_attributes_count_where_they_are_named() -> None:
    kernel = f("%s = reduce_sum(%a) axes[-1] -> tensor<f16, 3>", "return %s", params="%a: tensor<f16, 3x3>", ret="tensor<f16, 3>")
    assert len(found(kernel, kernel.replace("[-1]", "[0]"))) == 1
    assert not found(kernel, kernel.replace("[-1]", "[0]"), same=("axes",))
    assert len(found(kernel, kernel.replace("[-1]", "[1]"), same=("axes", "keepdims"))) == 1


def test_closure_report() -> None:
    kernel = f("%e = exp(%a) -> tensor<f16, 4>", "%n = neg(%e) -> tensor<f16, 4>", "return %n", params="%a: tensor<f16, 4>")
    program = f("%e = exp(%a) -> tensor<f16, 4>", "%n = neg(%e) -> tensor<f16, 4>", "return %n, %e", params="%a: tensor<f16, 4>",
                ret="(tensor<f16, 4>, tensor<f16, 4>)")  # fmt: skip
    (match,) = found(kernel, program)
    assert not match.closed and [v.name for v in match.escaping] == ["e"]
    (match,) = found(kernel, program.replace("%n, %e", "%n, %u").replace("return", "%u = tanh(%e) -> tensor<f16, 4>\n  return"))
    assert [v.name for v in match.escaping] == ["e"]


def test_a_search_that_would_not_end_soon_finds_nothing() -> None:
    names = [f"%p{i}" for i in range(40)]
    lines = [f"%s{i} = add({f'%s{i - 1}' if i else names[0]}, {names[i + 1]}) -> tensor<f32, 4>" for i in range(39)]
    kernel = f(*lines, "%e = exp(%s38) -> tensor<f32, 4>", "%y = sub(%e, %p0) -> tensor<f32, 4>", "return %y",
               params=", ".join(f"{n}: tensor<f32, 4>" for n in names), ret="tensor<f32, 4>")  # fmt: skip
    assert len(found(kernel, kernel)) == 1
    assert not found(kernel, kernel.replace("sub(%e, %p0)", "sub(%e, %s38)"))


def test_what_is_no_kernel_is_refused() -> None:
    with pytest.raises(ValueError, match="@f does not return"):
        Example.read(f("return %a"))
    with pytest.raises(ValueError, match="`exp` cannot be skipped"):
        Example.read(SCALED, skip=["exp"])
    with pytest.raises(Rejected):
        Example.read("func @f() -> {")


def test_an_example_is_a_pattern_of_the_greedy_driver() -> None:
    kernel = f("%e = exp(%a) -> tensor<f32, 4>", "%n = log(%e) -> tensor<f32, 4>", "return %n", params="%a: tensor<f32, 4>",
               ret="tensor<f32, 4>")  # fmt: skip

    def drop(match: Match, rw: Rewriter) -> bool:
        rw.replace_all_uses(match.root.result, match.inputs["a"])
        rw.erase(match.root)
        return True

    pattern = Example.read(kernel)["f"].pattern(drop, Effect.RANGE)
    p = read(f("%e = exp(%a) -> tensor<f16, 4>", "%n = log(%e) -> tensor<f16, 4>", "%o = neg(%n) -> tensor<f16, 4>", "return %o"))
    with Rewriter(p.main, p.dialect) as rw:
        stats = apply_patterns_and_fold_greedily(rw, PatternSet([pattern]).freeze(), GreedyConfig(effect=Effect.RANGE))
    assert stats.rewrites == 1 and "neg(%a)" in write(p) and "exp" not in write(p)


def test_the_page_about_passes_shows_code_that_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs" / "passes.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(# Patterns by example\n.*?)```", text, re.DOTALL)
    exec(compile(code, "docs/passes.md", "exec"), {})
    assert capsys.readouterr().out == "found: relu of %h\n"


FACTORS = """
func @gate(%x: tensor<f32, 4>, %w: tensor<f32, 4>, %scale: tensor<f32>) -> tensor<f32, 4> {
  %s = broadcast_to(%scale) result_shape[4] -> tensor<f32, 4>
  %e = exp(%x) -> tensor<f32, 4>
  %a = mul(%x, %s) -> tensor<f32, 4>
  %b = mul(%a, %w) -> tensor<f32, 4>
  %y = div(%b, %e) -> tensor<f32, 4>
  return %y
}
"""


@pytest.mark.parametrize(
    ("lines", "scale"),
    [
        (["%y = div(%x, %e)"], 1.0),
        (["%a = div(%x, %e)", "%n = neg(%a)", "%y = mul(%n, %z)"], -1.0),
        (["%r = reciprocal(%e)", "%a = mul(%z, %r)", "%b = div(%a, %k)", "%y = mul(%x, %b)"], 0.25),
        (["%a = div(%e, %x)", "%b = reciprocal(%a)", "%y = mul(%k, %b)"], 4.0),
        (["%a = mul(%x, %e)", "%y = mul(%a, %k)"], None),
        (["%a = div(%x, %e)", "%b = mul(%a, %z)", "%y = mul(%b, %z)"], None),
        (["%a = rsqrt(%x)", "%y = div(%a, %e)"], None),
        (["%a = div(%z, %e)", "%y = mul(%a, %k)"], None),
    ],
)
def test_products_match_in_every_grouping(lines: list[str], scale: float | None) -> None:
    gate = Example.read(FACTORS, optional=["w"], products=True)["gate"]
    t = "tensor<f32, 3>"
    body = "".join(f"  {line} -> {t}\n" for line in ["%e = exp(%x)", *lines])
    program = read(f"func @f(%x: {t}, %z: {t}) -> {t} {{\n  %k = constant() value[dense<4.0>] -> {t}\n{body}  return %y\n}}\n")
    rw = Rewriter(program.main, program.dialect)
    found = [m for m in gate.matches(rw) if m.root.result.name == "y"]
    assert [m.number("scale") for m in found] == ([] if scale is None else [scale])
    if found:
        assert found[0].inputs["x"].name == "x" and ("w" in found[0].inputs) == any("%z" in line for line in lines)


def test_two_numbers_of_one_product_are_refused() -> None:
    kernel = FACTORS.replace("%w: tensor<f32, 4>", "%w: tensor<f32>").replace("mul(%a, %w)", "mul(%a, %ws)")
    kernel = kernel.replace("  %b =", "  %ws = broadcast_to(%w) result_shape[4] -> tensor<f32, 4>\n  %b =")
    assert Example.read(kernel)
    with pytest.raises(ValueError, match="two numbers that are multiplied in %b"):
        Example.read(kernel, products=True)


def test_integer_products_match_as_they_are_written() -> None:
    def halved(name: str, first: str, second: str) -> str:
        t, two = "tensor<si32, 2>", "dense<2> : tensor<si32, 2>"
        lines = (f"  %{v} = {line.replace('2', two)} -> {t}\n" for v, line in (("a", first), ("b", second)))
        return f"func @{name}(%x: {t}, %y: {t}) -> {t} {{\n{''.join(lines)}  return %b\n}}\n"

    half = Example.read(halved("half", "mul(%x, %y)", "div(%a, 2)"), products=True)["half"]
    straight, turned = (read(halved("f", *lines)) for lines in (("mul(%y, %x)", "div(%a, 2)"), ("div(%x, 2)", "mul(%a, %y)")))
    assert [len(list(half.matches(Rewriter(p.main, p.dialect)))) for p in (straight, turned)] == [1, 0]
