"""Every rule on the other members of its ops' families: what holds for one need not hold for the next.

The case of a rule is written again with each op in turn replaced by another of its family, in the dtypes that the family takes.
Whatever canonicalization then does, the numbers stay: those of the declared bodies, on special values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest

from ptir_tools.core.arrays import numpy_dtype
from ptir_tools.core.declare import OPS
from ptir_tools.core.dialect import clone
from ptir_tools.core.dtypes import F32, SI32
from ptir_tools.core.evaluate import Context, run_block
from ptir_tools.core.ir import OpDef
from ptir_tools.dialects import load_dialect
from ptir_tools.dialects.ptir.rewrites import helpers
from ptir_tools.passes import Floats, PassContext, run_pipeline
from tests.rewrite.test_rules import FILES, parts
from tests.rewrite.test_rules_variants import equal, program

_CALL = re.compile(r"(?<== )\w+(?=\()")
MEMBERS: dict[str, list[str]] = {}
for _d in load_dialect("ptir").ops.values():
    MEMBERS.setdefault(_d.family, []).append(_d.short)
DTYPES = ("si8", "ui8", "bf16", "f16", "f64")


def members(text: str) -> Iterator[str]:
    """`text` with each op replaced by each other member of its family; not of a `while`, which might not end."""
    if " = while(" in text:
        return
    for call in _CALL.finditer(text):
        d = OPS.get(f"ptir.{call[0]}")
        for other in MEMBERS[d.family] if isinstance(d, OpDef) else ():
            if other != call[0]:
                yield text[: call.start()] + other + text[call.end() :]


def held(text: str) -> bool:
    """Whether the program of a text, if it is one, keeps its numbers in both modes."""
    if (before := program(text)) is None:
        return False
    for mode in (Floats.STRICT, Floats.DEFAULT):
        after, context = clone(before), PassContext(floats=mode)
        run_pipeline(after, "canonicalize,dce", context)
        if context.edits:
            sums = any(op.defn.short in ("dot_general", "reduce_sum") for op in before.main.body)
            assert equal(before, after, mode, mode is Floats.DEFAULT and sums), (mode, text)
    return True


CHANGED = {p.stem: list(dict.fromkeys(t for case, _ in parts(p) for t in members(case.before))) for p in FILES}


@pytest.mark.parametrize("file", [name for name, texts in CHANGED.items() if texts])
def test_rules_hold_for_all_members_of_a_family(file: str) -> None:
    assert sum(map(held, CHANGED[file]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("file", [name for name, texts in CHANGED.items() if texts])
def test_rules_hold_for_all_members_and_dtypes(file: str, dtype: str) -> None:
    for text in CHANGED[file]:
        held(re.sub(r"(tensor<|out_dtype\[)(f32|si32)\b", rf"\g<1>{dtype}", text))


def test_odd_functions_are_odd() -> None:
    """What the helper calls odd is odd in numbers."""
    x = np.array([0.25, 0.5, 1.0, 1.75, 3.0, 1e-3, 1e3])
    named = set[str]()
    for name in MEMBERS["elementwise_unary"]:
        found = program(
            f"func @f(%x: tensor<f64, 7>) -> tensor<f64, 7> {{\n  %y = {name}(%x) -> tensor<f64, 7>\n  return %y\n}}\n"
        )
        if found is None:  # it takes integers alone
            continue
        with np.errstate(all="ignore"):
            (there,), (back,) = (run_block(found.main, [v], Context()) for v in (x, -x))
        if helpers.odd(found.main.body[0].result):
            named.add(name)
            assert np.array_equal(back, -there, equal_nan=True), name
    circular = {"sin", "tan", "asin", "atan", "sinh", "asinh", "atanh"}
    assert named >= {"neg", "tanh", "erf", "reciprocal", "cbrt", "erf_inv", "round_even", "round_away", *circular}
    assert named == {name for name in MEMBERS["elementwise_unary"] if OPS[f"ptir.{name}"].algebra.parity == "odd"}


def test_operands_commute_where_that_is_declared() -> None:
    for d in load_dialect("ptir").ops.values():
        if len(d.groups) != 2 or d.family not in ("elementwise_binary", "compare"):
            continue
        for dtype in (F32, SI32):
            out = "i1" if d.family == "compare" else dtype
            t, o = f"tensor<{dtype}, 4>", f"tensor<{out}, 4>"
            found = program(f"func @f(%x: {t}, %y: {t}) -> {o} {{\n  %z = {d.short}(%x, %y) -> {o}\n  return %z\n}}\n")
            if found is None:
                continue
            x, y = (np.array(v).astype(numpy_dtype(dtype)) for v in ([1, -2, 5, 3], [2, -2, 4, -1]))
            (one,), (other,) = (run_block(found.main, pair, Context()) for pair in ([x, y], [y, x]))
            assert np.array_equal(one, other, equal_nan=dtype is F32) == d.commutes, d.short
            break
        else:
            raise AssertionError(f"{d.short} takes neither floats nor integers")


CHOICES = [(c, order) for c in ("lt", "le", "gt", "ge", "eq", "ne") for order in ("%x, %y", "%y, %x")]


@pytest.mark.parametrize("mode", [Floats.STRICT, Floats.DEFAULT])
@pytest.mark.parametrize(("comparison", "order"), CHOICES)
def test_a_choice_by_a_comparison_keeps_its_nans(comparison: str, order: str, mode: Floats) -> None:
    """NumPy compares and chooses. A NaN on one side makes the choice a number where a minimum or maximum is a NaN."""
    values = [np.nan, -np.inf, -1.0, -0.0, 0.0, 2.0, np.inf]
    x, y = (np.array(a, np.float32).reshape(-1) for a in np.meshgrid(values, values))
    t = f"tensor<f32, {x.size}>"
    lines = (f"%a = compare_{comparison}(%x, %y) -> tensor<i1, {x.size}>", f"%z = select(%a, {order}) -> {t}")
    read = program(f"func @f(%x: {t}, %y: {t}) -> {t} {{\n  {lines[0]}\n  {lines[1]}\n  return %z\n}}\n")
    assert read is not None
    run_pipeline(read, "canonicalize,dce", PassContext(floats=mode))
    (found,) = run_block(read.main, [x, y], Context())
    first, second = (x, y) if order == "%x, %y" else (y, x)
    flags = {"lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y, "eq": x == y, "ne": x != y}
    wanted = np.where(flags[comparison], first, second)
    np.testing.assert_array_equal(found, wanted)  # a zero equals one of the other sign
    if mode is Floats.STRICT:
        np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))
