"""Rows of the legality tables of docs/translation.md, and programs of one op to fill them.

A row is `kind, name, accepted, refused`: `Y` translates exactly, `=` exactly and one op to one, so that the text comes back
as it was, `C` under a condition that is noted, `L` with --lossy alone, `N` never (`accepted` is then the nearest that does).
"""

from __future__ import annotations

from tests.convert.translations import agree, parse, text, translated

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
    agree(before, there.program, there.constants, runs=2, finite=kind == "L")
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
TOP_K = "%t = top_k(%x) k[{}] largest[{}] -> (tensor<f32, 2x{}>, tensor<si32, 2x{}>)\n  ".format
# What chooses elements by data, or ranks them.
CHOICES: list[Row] = [
    ("C", "take by data", ptir("take(%x, %y)", "f32, 2x4x3", "f32, 5x3", "si32, 2x4"), None),
    ("C", "take of i1 by data", ptir("take(%x, %y)", "i1, 4x3", "i1, 5x3", "si32, 4"), None),
    ("C", "take of f16 by a scalar", ptir("take(%x, %y)", "f16, 3", "f16, 5x3", "si32"), None),
    ("C", "gather", ptir("gather(%x, %y) axis[0]", "f32, 4x3", F, "si32, 4x3"), None),
    ("C", "gather along the last axis", ptir("gather(%x, %y) axis[-1]", "si32, 2x5", "si32, 2x3", "si32, 2x5"), None),
    *(("C", f"scatter_reduce {k}", ptir(f"scatter_reduce(%x, %y, %z) axis[{a}] reduce[{k}]", F, F, "si32, 2x3", F), None)
      for k in ("add", "max", "min", "replace") for a in (0, 1)),
    ("C", "scatter_reduce of integers", ptir("scatter_reduce(%x, %y, %z) axis[0] reduce[max]", "si32, 4x3", "si32, 4x3",
                                             "si32, 2x3", "si32, 2x3"), None),
    ("C", "scatter_add of rows", ptir("scatter_add(%x, %y, %z) update_window_dims[1] inserted_window_dims[0] "
                                      "scatter_dims_to_operand_dims[0]", "f32, 5x3", "f32, 5x3", "si32, 4", "f32, 4x3"), None),
    ("C", "scatter_add of columns", ptir("scatter_add(%x, %y, %z) update_window_dims[0] inserted_window_dims[1] "
                                         "scatter_dims_to_operand_dims[1] index_vector_dim[1]", "f32, 3x5", "f32, 3x5",
                                         "si32, 4x1", "f32, 3x4"), None),
    *(("C", f"scatter_add of windows, {d}", ptir(f"scatter_add(%x, %y, %z) update_window_dims[0, 2] inserted_window_dims[] "
                                                 f"scatter_dims_to_operand_dims[1, 0] index_vector_dim[{d}]", "f32, 5x4",
                                                 "f32, 5x4", f"si32, {s}", "f32, 2x3x4"), None) 
      for d, s in ((1, "3x2"), (0, "2x3"))),
    ("C", "scatter_add of elements", ptir("scatter_add(%x, %y, %z) update_window_dims[] inserted_window_dims[0, 1] "
                                          "scatter_dims_to_operand_dims[0, 1] index_vector_dim[1]", "si32, 3x5", "si32, 3x5",
                                          "si32, 4x2", "si32, 4"), None),
    ("C", "dynamic_slice", ptir("dynamic_slice(%x, %y) sizes[2, 1]", "f32, 2x1", "f32, 5x3", "si32, 2"), None),
    ("C", "dynamic_update_slice", ptir("dynamic_update_slice(%x, %y, %z) sizes[2, 2]", "f32, 5x3", "f32, 5x3", "f32, 2x2",
                                       "si32, 2"), None),
    ("C", "dynamic_update_slice of whole rows", ptir("dynamic_update_slice(%x, %y, %z) sizes[1, 3]", "bf16, 5x3", "bf16, 5x3",
                                                     "bf16, 1x3", "si32, 2"), None),
    ("C", "segment_reduce", ptir("segment_reduce(%x, %y) kind[sum] num_segments[3]", "f32, 3x2", "f32, 5x2", "si32, 5"), None),
    ("C", "segment_reduce max", ptir("segment_reduce(%x, %y) kind[max] num_segments[3]", "f32, 3", "f32, 5", "si32, 5"), None),
    ("C", "argmax", ptir("argmax(%x) axis[1]", "si32, 2"), None),
    ("C", "argmax of integers", ptir("argmax(%x) axis[0] keepdims[true]", "si32, 1x3", "si32, 2x3"), None),
    *(("C", f"top_k, largest {most}", ptir("reshape(%t[0]) new_shape[4]", "f32, 4", more=TOP_K(2, most, 2, 2)), None)
      for most in ("true", "false")),
    ("C", "places of top_k", ptir("reshape(%t[1]) new_shape[6]", "si32, 6", more=TOP_K(3, "true", 3, 3)), None),
]  # fmt: skip

# What neither MIND nor Tiny can say.
NOWHERE: list[Row] = [
    ("N", "while", None, WHILE),
    ("N", "rng_uniform", None, ptir("rng_uniform()")),
    ("N", "rng_normal", None, ptir("rng_normal()")),
    ("N", "custom_call", None, ptir('custom_call(%x) target["a.b.v1"] attrs[{}]')),
    ("N", "other dtypes", None, ptir("neg(%x)", "fp8e4m3, 3", "fp8e4m3, 3")),
    ("N", "a tuple", None, ptir("stop_gradient(%x[0])").replace("%x: tensor<f32, 2x3>", "%x: tuple<tensor<f32, 2x3>>")),
]  # fmt: skip
