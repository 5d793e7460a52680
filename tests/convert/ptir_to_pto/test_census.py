"""Every op of PTIR in every element type that a target has: translated, run, and compared. None is refused."""

from __future__ import annotations

import pytest

from ptir_tools.convert import translate
from ptir_tools.core import dtypes
from ptir_tools.core.builder import single_function
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.dtypes import I1, PTIR_DTYPES, SI8, SI32, SI64, UI64, DType
from ptir_tools.core.types import tensor
from ptir_tools.core.verify import verify
from ptir_tools.core.violations import Violation
from ptir_tools.dialects import load_dialect
from ptir_tools.dialects.ptir.ops.scalars import natural_zero
from ptir_tools.dialects.pto.facts import element_types
from ptir_tools.dialects.pto.names import DTYPE_TEXT
from ptir_tools.dialects.pto.targets import find
from tests.convert.ptir_to_pto.programs import TARGETS, agree

PTIR = load_dialect("ptir")
T, ZERO = "T", "ZERO"  # the element type at hand, and 0 in it
ROWS = (4, 6)

# Operands, each a shape or (shape, element type), and attributes. All others take values of one shape.
FORMS: dict[str, tuple[list, dict]] = {
    "iota": ([], {"shape": ROWS, "dtype": T, "axis": 0}),
    "select": ([(ROWS, I1), ROWS, ROWS], {}),
    "clamp": ([ROWS, ROWS, ROWS], {}),
    "cast": ([ROWS], {"dtype": dtypes.F32}),
    "concat": ([ROWS, ROWS], {"axis": 1}),
    "pad": ([ROWS], {"low": (1, 0), "high": (0, 2), "interior": (0, 1), "pad_value": ZERO}),
    "tile": ([ROWS], {"repeats": (2, 1)}),
    "reduce_window": (
        [(5, 6)],
        {"window_dims": (2, 2), "strides": (1, 1), "padding": ((0, 0), (0, 0)), "base_dilation": (1, 1),
         "window_dilation": (1, 1), "reduce": "max"},
    ),
    "extract_patches": (
        [(1, 5, 6, 2)],
        {"window": (2, 2), "strides": (1, 1), "dilation": (1, 1), "padding": ((0, 0), (0, 0)), "pad_value": ZERO},
    ),
    "dot_general": ([(4, 16), (16, 6)], {"contract_lhs": (1,), "contract_rhs": (0,)}),
    "transpose": ([ROWS], {"perm": (1, 0)}),
    "reshape": ([ROWS], {"new_shape": (3, 8)}),
    "broadcast_to": ([(1, 6)], {"result_shape": ROWS}),
    "slice": ([ROWS], {"starts": (1, 2), "sizes": (2, 3)}),
    "take": ([ROWS, ((3,), SI32)], {}),
    "gather": ([ROWS, (ROWS, SI32)], {"axis": 0}),
    "layer_norm": ([ROWS, (6,), (6,)], {"epsilon": 1e-5, "feature_axis": 1}),
    "quantize": ([ROWS], {"output_dtype": SI8, "axis": 1, "scales": (0.5,) * 6, "zero_points": (1,) * 6}),
    "dequantize": ([ROWS], {"output_dtype": dtypes.F32, "axis": 1, "scales": (0.5,) * 6, "zero_points": (1,) * 6}),
    "top_k": ([ROWS], {"k": 2, "axis": 1}),
    "sort": ([ROWS], {"axis": 1}),
    "reduce_precision": ([ROWS], {"exponent_bits": 5, "mantissa_bits": 3}),
    **{f"reduce_{n}": ([ROWS], {"axes": (1,)}) for n in ("sum", "max", "min", "prod", "and", "or", "xor")},
    **{f"arg{n}": ([ROWS], {"axis": 1, "output_dtype": SI32}) for n in ("max", "min")},
    **{f"cum{n}": ([ROWS], {"axis": 1}) for n in ("sum", "prod", "max", "min")},
}  # fmt: skip

# Not here: what refers to regions, kernels or complex numbers, and what is refused by the rule (random numbers, scatter by data).
ELSEWHERE = {
    *("cond", "while", "scan", "custom_call", "constant", "real", "imag", "complex", "dynamic_slice", "dynamic_update_slice"),
    *("requantize", "rng_uniform", "rng_normal", "scatter", "scatter_add", "scatter_reduce", "segment_reduce", "bitcast"),
}


def one(short: str, dtype: DType) -> Program | None:
    """A program of one op; None where PTIR has it not in elements of that type."""
    shapes, attrs = FORMS.get(short, ([], {}))
    counts = [len(shapes)] if short in FORMS else [1, 2]
    for n in counts:
        made, b = single_function(PTIR)
        given = shapes or [ROWS] * (0 if short == "iota" else n)
        operands = []
        for k, s in enumerate(given):
            shape, elements = s if len(s) == 2 and isinstance(s[1], DType) else (s, dtype)
            operands.append(b.param(tensor(elements, shape), f"x{k}"))
        try:
            y = b.op(
                short, *operands, **{k: dtype if v is T else natural_zero(dtype) if v is ZERO else v for k, v in attrs.items()}
            )
        except (Violation, TypeError):
            continue
        made.main.results, made.main.result_types = [y], [y.type]
        if verify(made, found := Diagnostics()) and not found.errors:
            return made
    return None


def cases(target: str) -> list[tuple[str, DType]]:
    loads = element_types(find(target))["load"]
    held = [d for d in PTIR_DTYPES if DTYPE_TEXT.get(d) in loads and d not in (SI64, UI64)] + [I1]
    return [(name, d) for name in PTIR.ops if name not in ELSEWHERE for d in dict.fromkeys(held)]


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_every_op_in_every_type(target: str) -> None:
    wrong, made = [], set()
    for short, dtype in cases(target):
        before = one(short, dtype)
        if before is None:
            continue
        made.add(short)
        found = Diagnostics()
        after = translate(before, "pto", found, Options(target=target, lossy=True))
        if after is None:
            wrong.append(f"{short} {dtype}: {sorted({d.message for d in found})}")
            continue
        try:
            agree(before, after)
        except AssertionError as error:
            wrong.append(f"{short} {dtype}: differs {str(error)[:200]}")
    assert not wrong, "\n".join(wrong)
    assert made == set(PTIR.ops) - ELSEWHERE
