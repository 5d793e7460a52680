"""Results that nothing reads leave loops, with the carried values and inputs that only they need."""

from __future__ import annotations

from itertools import chain, combinations

import numpy as np
import pytest

import ptir_tools as ptir

ROW, ROWS = "tensor<f32, 2>", "tensor<f32, 3x2>"
# The results of a scan, with the parameters that each is made of: two carried values, two outputs of each step.
MADE = {0: ("c", "a"), 1: ("d", "c"), 2: ("b",), 3: ("d", "e")}
READ = [*chain.from_iterable(combinations(MADE, n) for n in range(1, 5))]
TEXT = f"""program @f (spec_version = ptir.v0.4) {{
  func @f(%c: {ROW}, %d: {ROW}, %a: {ROWS}, %b: {ROWS}, %e: {ROWS}) -> (RESULTS) {{
    %t = scan(%c, %d, %a, %b, %e) body_region[^s] carry_count[2] scan_output_count[2] -> ({ROW}, {ROW}, {ROWS}, {ROWS})
    return VALUES
  }}
  region ^s(%c: {ROW}, %d: {ROW}, %a: {ROW}, %b: {ROW}, %e: {ROW}) -> ({ROW}, {ROW}, {ROW}, {ROW}) {{
    %c1 = add(%c, %a) -> {ROW}
    %d1 = mul(%d, %c) -> {ROW}
    %o = neg(%b) -> {ROW}
    %p = maximum(%d, %e) -> {ROW}
    return %c1, %d1, %o, %p
  }}
}}
"""


def needed(results: tuple[int, ...]) -> set[str]:
    """The operands that some results need: a carried value needs what its next one is made of. Without an input, the first one
    tells how many steps there are."""
    found: set[str] = set()
    left = [x for k in results for x in MADE[k]] + [x for x, k in (("c", 0), ("d", 1)) if k in results]
    while left:
        if (x := left.pop()) not in found:
            found.add(x)
            left += {"c": MADE[0], "d": MADE[1]}.get(x, ())
    return found if found & {"a", "b", "e"} else found | {"a"}


@pytest.mark.parametrize("results", READ, ids=str)
def test_a_scan_keeps_what_the_results_that_are_read_need(results: tuple[int, ...]) -> None:
    types = ", ".join(ROW if k < 2 else ROWS for k in results)
    text = TEXT.replace("RESULTS", types).replace("VALUES", ", ".join(f"%t[{k}]" for k in results))
    program = ptir.read(text)
    made = ptir.optimize(program, "canonicalize,cse,dce")
    (scan,) = (op for op in made.main.body if op.defn.short == "scan")
    assert {x.name for x in scan.operands} == needed(results)  # type: ignore[union-attr]
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(p.type.static_shape).astype(np.float32) for p in program.main.params]  # type: ignore[attr-defined]
    for a, b in zip(*(ptir.run(p, inputs, engine="reference").values() for p in (program, made)), strict=True):
        np.testing.assert_array_equal(a, b)
