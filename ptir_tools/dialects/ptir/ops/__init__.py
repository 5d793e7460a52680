"""Every op of the PTIR contract, one declaration per text name; importing this package declares them all.

The attributes of an op are the fields of gpt.rs's payload. An attribute's annotation is its kind, for readers and writers:

| annotation | value | text |
|---|---|---|
| `int`, `bool`, `float`, `str` | as in Python | `1`, `true`, `1e-05`, `"x"` |
| `int \\| None` | an integer, or None when absent | `1` |
| `DType`, `DType \\| None` | a dtype of the contract | `f32` |
| `tuple[int, ...]` | one integer per axis, or a list of axes | `0, 1` |
| `tuple[float, ...]` | a list of numbers | `0.5, 1e-5` |
| `tuple[tuple[int, int], ...]` | a pair per axis | `[0, 0], [1, 1]` |
| `Shape` | extents: integers and `Sym` | `?N, 4` |
| `NewShape` | extents, of which one may be -1 (inferred) | `?N, -1` |
| `Scalar` | `scalars.Scalar(kind, value)` | `0.0`, `signed(0)` |
| `Literal` | `core.ir.Literal` | `dense<0.0>` |
| `ScatterKind`, `WindowKind`, `SegmentKind`, `UpdateKind` | one of the strings in `kinds.ENUMERATIONS` | `add` |
| `Attrs` | `((key, (kind, value)), …)` sorted by key; kinds in `kinds.ATTR_KINDS`, arrays are tuples | `{on = true}` |

A default is a value, or `core.ir.Derived` when it follows from other attributes and operand types (`OpDef.fill`).
Regions are keyword parameters annotated `Region`: `true_region`, `false_region`, `cond_region`, `body_region`.
"""

# isort: off
# In the order in which the manual has them and random programs draw them.
from ptir_tools.dialects.ptir.ops import compare, constants, control, join, window, linalg, shape, normalize, custom
from ptir_tools.dialects.ptir.ops import elementwise, indexing, quantize, random, ranking, reduce, scatter
from ptir_tools.dialects.ptir.ops import bits, complexes, cumulative, functions, rounding

# isort: on

__all__ = [
    "bits", "compare", "complexes", "constants", "control", "cumulative", "custom", "elementwise", "functions", "indexing",
    "join", "linalg", "normalize", "quantize", "random", "ranking", "reduce", "rounding", "scatter", "shape", "window",
]  # fmt: skip
