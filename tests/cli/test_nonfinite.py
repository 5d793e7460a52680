"""`ptir run --check-nan`: the op that made the first NaN or infinity, and what came in."""

from __future__ import annotations

import pytest

from tests.conftest import run_ptir

V = "tensor<f32, 3>"


def checked(*body: str, engine: str = "reference", **inputs: str) -> tuple[int, str]:
    """(exit code, the first line said and the number of the line it shows) of a function of %x with this body."""
    text = "\n".join((f"func @f(%x: {V}) -> {V} {{", *body, "  return %y", "}")) + "\n"
    return said(text, "--engine", engine, *(f"--input={name}={spec}" for name, spec in inputs.items()))


def said(text: str, *options: str) -> tuple[int, str]:
    ran = run_ptir("run", "--check-nan", *options, stdin=text.encode())
    lines = [line for line in ran.err.splitlines() if line.startswith("error[NonFinite]")]
    return ran.status, lines[0].partition(": ")[2] if lines else ran.err.partition("\n")[0]


LOG = f"  %y = log(%x) -> {V}"
THROUGH = (f"  %a = neg(%x) -> {V}", f"  %y = exp(%a) -> {V}")
INFINITE = (f"  %c = constant() value[dense<inf>] -> {V}", f"  %y = mul(%c, %x) -> {V}")


@pytest.mark.parametrize("engine", ["reference", "numpy", "native"])
@pytest.mark.parametrize(
    ("body", "x", "status", "message"),
    [
        ((LOG,), "[1, -1, 1]", 1, "%y holds a NaN, which `log` made"),
        ((LOG,), "[1, 0, 1]", 1, "%y holds an infinity, which `log` made"),
        ((LOG,), "[1, nan, 1]", 1, "a NaN was in the input `x`; no op made it"),
        ((LOG,), "[1, inf, 1]", 0, "warning[NonFinite]: an infinity was in the input `x`; no op made it"),
        ((LOG,), "[1, 2, 3]", 0, ""),
        (THROUGH, "inf", 0, "warning[NonFinite]: an infinity was in the input `x`; no op made it"),
        (THROUGH, "-100", 1, "%y holds an infinity, which `exp` made"),
        ((f"  %y = sub(%x, %x) -> {V}",), "inf", 1, "%y holds a NaN, which `sub` made"),
        ((f"  %y = maximum(%x, dense<-inf> : {V}) -> {V}",), "1", 0, ""),
        ((f"  %y = add(%x, dense<-inf> : {V}) -> {V}",), "1", 0, ""),
        ((f"  %y = add(%x, dense<nan> : {V}) -> {V}",), "1", 1, "%y holds a NaN of a constant; no op made it"),
        (INFINITE, "2", 0, ""),
        (INFINITE, "0", 1, "%y holds a NaN, which `mul` made"),
        ((f"  %y = constant() value[dense<nan>] -> {V}",), "0", 1, "%y holds a NaN of a constant; no op made it"),
    ],
)  # fmt: skip
def test_the_maker(engine: str, body: tuple[str, ...], x: str, status: int, message: str) -> None:
    assert checked(*body, engine=engine, x=x) == (status, message)


LOOP = """program @p (spec_version = ptir.v0.4) {
  func @p(%m: tensor<f32>, %xs: tensor<f32, 3>) -> tensor<f32> {
    %t = scan(%m, %xs) body_region[^step] carry_count[1] scan_output_count[0] -> tensor<f32>
    return %t
  }
  region ^step(%c: tensor<f32>, %x: tensor<f32>) -> (tensor<f32>) {
    %e = exp(%x) -> tensor<f32>
    %n = maximum(%c, %e) -> tensor<f32>
    return %n
  }
}
"""


@pytest.mark.parametrize(
    ("m", "xs", "status", "message"),
    [
        ("-inf", "[1, 2, 3]", 0, "warning[NonFinite]: an infinity was in the input `m`; no op made it"),
        ("inf", "[1, 2, 3]", 0, "warning[NonFinite]: an infinity was in the input `m`; no op made it"),
        ("-inf", "[1, 100, 3]", 1, "%e holds an infinity, which `exp` made"),
        ("0", "[1, 100, 3]", 1, "%e holds an infinity, which `exp` made"),
    ],
)
def test_in_a_loop_it_is_the_op_of_the_body(m: str, xs: str, status: int, message: str) -> None:
    assert said(LOOP, "--engine", "reference", f"--input=m={m}", f"--input=xs={xs}") == (status, message)
