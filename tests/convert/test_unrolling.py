"""PTIR to MIND: scans of known length, branches, and parameters of i1."""

from __future__ import annotations

import pytest

from tests.convert.translations import agree, parse, translated

REGIONS = """
  region ^step(%h: tensor<f32, 3>, %w: tensor<f32, 3>, %x: tensor<f32, 3>)
      -> (tensor<f32, 3>, tensor<f32, 3>, tensor<f32, 3>) {
    %p = mul(%w, %h) -> tensor<f32, 3>
    %n = add(%p, %x) -> tensor<f32, 3>
    return %n, %w, %h
  }
  region ^swap(%a: tensor<si32>, %b: tensor<si32>, %s: tensor<si32>) -> (tensor<si32>, tensor<si32>) {
    %t = add(%a, %s) -> tensor<si32>
    return %b, %t
  }
  region ^less(%h: tensor<f32, 3>) -> (tensor<f32, 3>, tensor<f32, 3>) {
    %n = neg(%h) -> tensor<f32, 3>
    return %n, %h
  }
  region ^more(%h: tensor<f32, 3>) -> (tensor<f32, 3>, tensor<f32, 3>) {
    return %h, %h
  }
}
"""
SCAN = """program @f (spec_version = ptir.v0.4) {
  func @f(%x: tensor<f32, STEPSx3>, %h: tensor<f32, 3>, %w: tensor<f32, 3>) -> (tensor<f32, 3>, tensor<f32, STEPSx3>) {
    %r = scan(%h, %w, %x) body_region[^step] carry_count[2] scan_output_count[1]
      -> (tensor<f32, 3>, tensor<f32, 3>, tensor<f32, STEPSx3>)
    return %r[0], %r[2]
  }"""
SWAP = """program @f (spec_version = ptir.v0.4) {
  func @f(%x: tensor<si32, 4>, %a: tensor<si32>, %b: tensor<si32>) -> (tensor<si32>, tensor<si32>) {
    %r = scan(%a, %b, %x) body_region[^swap] carry_count[2] scan_output_count[0] -> (tensor<si32>, tensor<si32>)
    %q = scan(%r[1], %r[0], %x) body_region[^swap] carry_count[2] scan_output_count[0] -> (tensor<si32>, tensor<si32>)
    return %q[0], %q[1]
  }"""
COND = """program @f (spec_version = ptir.v0.4) {
  func @f(%o: tensor<i1>, %x: tensor<f32, 3>, %m: tensor<i1, 3>) -> (tensor<f32, 3>, tensor<f32, 3>, tensor<f32, 3>) {
    %c = cond(%o, %x) true_region[^less] false_region[^more] -> (tensor<f32, 3>, tensor<f32, 3>)
    %s = select(%m, %x, %c[0]) -> tensor<f32, 3>
    return %c[0], %c[1], %s
  }"""


@pytest.mark.parametrize(
    "source", [SCAN.replace("STEPS", "1"), SCAN.replace("STEPS", "4"), SWAP, COND], ids=["one step", "scan", "swap", "cond"]
)
def test_control_flow_becomes_straight_code(source: str) -> None:
    before = parse(source + REGIONS, "ptir")
    there = translated(before, "mind")
    assert there.program is not None, there.errors
    agree(before, there.program, {}, runs=3)


def test_a_tuple_is_refused() -> None:
    """What is used whole has no ops to replace it."""
    t = "tensor<f32, 3>"
    tuples = COND.replace("return %c[0], %c[1], %s", "return %c, %s").replace(f"-> ({t}, {t}, {t})", f"-> (tuple<{t}, {t}>, {t})")
    there = translated(parse(tuples + REGIONS, "ptir"), "mind")
    assert there.program is None and {code for code, _ in there.errors} == {"NotTranslatable"}


def test_an_op_that_may_fail_is_not_computed_where_it_is_not_taken() -> None:
    failing = """func @f(%o: tensor<i1>, %x: tensor<f32, 3>, %i: tensor<si32>) -> tensor<f32> {
    %c = cond(%o, %x, %i) true_region[^read] false_region[^none] -> tensor<f32>
    return %c
  }
  region ^read(%a: tensor<f32, 3>, %i: tensor<si32>) -> tensor<f32> {
    %t = take(%a, %i) -> tensor<f32>
    return %t
  }
  region ^none(%a: tensor<f32, 3>, %i: tensor<si32>) -> tensor<f32> {
    return dense<0.0> : tensor<f32>
  }
"""
    there = translated(parse("program @f (spec_version = ptir.v0.4) {\n" + failing + "}\n", "ptir"), "mind")
    assert there.program is None and any("cond" in message for _, message in there.errors)


@pytest.mark.parametrize("steps", ["?N", "2000"])
def test_what_has_too_many_steps_is_refused(steps: str) -> None:
    there = translated(parse(SCAN.replace("STEPS", steps) + REGIONS, "ptir"), "mind")
    assert there.program is None and any("scan" in message or "symbolic" in message for _, message in there.errors)


def test_a_parameter_of_i1_is_an_integer() -> None:
    there = translated(parse(COND + REGIONS, "ptir"), "mind")
    assert there.program is not None
    assert [p.type.dtype.name for p in there.program.main.params] == ["si32", "f32", "si32"]
    assert "ConditionalTranslation" in there.notes
