"""Rows of the legality tables of docs/translation.md, and programs of one op to fill them.

A row is `kind, name, accepted, refused`: `Y` translates exactly, `=` exactly and one op to one, so that the text comes back
as it was, `C` under a condition that is noted, `L` with --lossy alone, `N` never (`accepted` is then the nearest that does).
"""

from __future__ import annotations

from translations import agree, parse, text, translated

Row = tuple[str, str, str | None, str | None]


def check_row(row: Row, form: str, target: str) -> None:
    kind, _, accepted, refused = row
    if accepted is not None:
        _accept(kind, accepted, form, target)
    if refused is not None:
        there = translated(parse(refused, form), target, pool=False)
        assert there.program is None and there.errors, text(there.program)
        assert {code for code, _ in there.errors} <= {"NotTranslatable", "E6001", "E6006", "UnboundSymbol"}, there.errors


def _accept(kind: str, accepted: str, form: str, target: str) -> None:
    before = parse(accepted, form)
    if kind == "L":
        assert translated(before, target, pool=False).program is None
    there = translated(before, target, lossy=kind == "L", pool=kind == "C")
    assert there.program is not None, there.errors
    assert not there.errors
    if kind in "CL":
        assert "ConditionalTranslation" in there.notes or there.constants
    if kind in "Y=":
        assert there.notes == []
    agree(before, there.program, there.constants, runs=2)
    back = translated(there.program, form, constants=there.constants)
    if kind == "=":
        assert back.program is not None, back.errors
        assert text(back.program) == text(before)
    if back.program is not None:
        agree(before, back.program, back.constants)


def ids(rows: list[Row]) -> list[str]:
    return [name for _, name, _, _ in rows]


def mind(op: str, *types: str, more: str = "") -> str:
    """A module of inputs x, y, … of these types, and one operation on them; `more` stands before it."""
    inputs = "".join(f"%{i} = Input {{name={i}}} : tensor<{t}>\n" for i, t in zip("xyz", types or ("f32[2, 3]",), strict=False))
    return f"{inputs}{more}%9 = {op}\noutputs: %9\n"


def ptir(op: str, result: str = "f32, 2x3", *types: str, more: str = "") -> str:
    """A function of x, y, z of these types, and one op on them; `more` stands before it."""
    inputs = ", ".join(f"%{'xyz'[i]}: tensor<{t}>" for i, t in enumerate(types or ("f32, 2x3",)))
    return f"func @main({inputs}) -> tensor<{result}> {{\n  {more}%r = {op} -> tensor<{result}>\n  return %r\n}}\n"


F = "f32, 2x3"
SUM = "accum_dtype[{0}] out_dtype[{0}]".format
COND = """program @main (spec_version = ptir.v0.4) {{
  func @main(%x: tensor<f32, 2x3>, %p: tensor<i1>) -> tensor<f32, 2x3> {{
    %r = cond(%p, %x) true_region[^r0] false_region[^r1] -> tensor<f32, 2x3>
    return %r
  }}
  region ^r0(%a: tensor<f32, 2x3>) -> tensor<f32, 2x3> {{
    %e = {}(%a) -> tensor<f32, 2x3>
    return %e
  }}
  region ^r1(%a: tensor<f32, 2x3>) -> tensor<f32, 2x3> {{
    return %a
  }}
}}
""".format
SCAN = """program @main (spec_version = ptir.v0.4) {{
  func @main(%x: tensor<f32, {0}x3>, %c: tensor<f32, 3>) -> (tensor<f32, 3>, tensor<f32, {0}x3>) {{
    %r = scan(%c, %x) body_region[^r0] carry_count[1] scan_output_count[1] -> (tensor<f32, 3>, tensor<f32, {0}x3>)
    return %r[0], %r[1]
  }}
  region ^r0(%a: tensor<f32, 3>, %b: tensor<f32, 3>) -> (tensor<f32, 3>, tensor<f32, 3>) {{
    %e = add(%a, %b) -> tensor<f32, 3>
    %g = {1}(%a, %e) -> tensor<f32, 3>
    return %e, %g
  }}
}}
""".format
WHILE = """program @main (spec_version = ptir.v0.4) {
  func @main(%x: tensor<f32>) -> tensor<f32> {
    %r = while(%x) cond_region[^r0] body_region[^r1] -> tensor<f32>
    return %r
  }
  region ^r0(%a: tensor<f32>) -> (tensor<i1>, tensor<f32>) {
    %e = compare_gt(%a, dense<2.0> : tensor<f32>) -> tensor<i1>
    return %e, %a
  }
  region ^r1(%a: tensor<f32>) -> tensor<f32> {
    %e = neg(%a) -> tensor<f32>
    return %e
  }
}
"""
# What neither MIND nor Tiny can say.
NOWHERE: list[Row] = [
    ("N", "erf", None, ptir("erf(%x)")),
    ("N", "argmax", None, ptir("argmax(%x) axis[1]", "si32, 2")),
    ("N", "gather", None, ptir("gather(%x, %y) axis[1]", F, F, "si32, 2x3")),
    ("N", "scatter_reduce", None, ptir("scatter_reduce(%x, %y, %z) axis[1]", F, F, "si32, 2x3", F)),
    ("N", "dynamic_slice", None, ptir("dynamic_slice(%x, %y) sizes[1, 1]", "f32, 1x1", F, "si32, 2")),
    ("N", "dynamic_update_slice", None, ptir("dynamic_update_slice(%x, %y, %z) sizes[1, 1]", F, F, "f32, 1x1", "si32, 2")),
    ("N", "while", None, WHILE),
    ("N", "rng_uniform", None, ptir("rng_uniform()")),
    ("N", "rng_normal", None, ptir("rng_normal()")),
    ("N", "top_k", None, ptir("reshape(%t[0]) new_shape[2]", "f32, 2",
                              more="%t = top_k(%x) k[1] -> (tensor<f32, 2x1>, tensor<si32, 2x1>)\n  ")),
    ("N", "segment_reduce", None, ptir("segment_reduce(%x, %y) kind[sum] num_segments[2]", F, F, "si32, 2")),
    ("N", "custom_call", None, ptir('custom_call(%x) target["a.b.v1"] attrs[{}]')),
    ("N", "other dtypes", None, ptir("neg(%x)", "si8, 3", "si8, 3")),
    ("N", "a tuple", None, ptir("stop_gradient(%x[0])").replace("%x: tensor<f32, 2x3>", "%x: tuple<tensor<f32, 2x3>>")),
]  # fmt: skip
