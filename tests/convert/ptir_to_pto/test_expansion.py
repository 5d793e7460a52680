"""Expansion of ops that tiles lack: a program of PTIR stays one, computes the same, and has no op left that the target lacks."""

import pytest

from ptir_tools.convert.ptir_to_pto.prepare import EXPANSIONS, LAST, expanded
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.verify import verify
from ptir_tools.dialects.pto.targets import A3, A5
from ptir_tools.engines.compare import check
from ptir_tools.engines.options import RunOptions

from .programs import function

SHAPE = "6x5"
CASES = [
    ("popcount(%x)", "si32", "si32"),
    ("count_leading_zeros(%x)", "ui8", "ui8"),
    ("shift_right_logical(%x, %x)", "ui8", "ui8"),
    ("shift_right_logical(%x, %x)", "si32", "si32"),
    ("shift_right_arithmetic(%x, %x)", "ui16", "ui16"),
    ("pow(%x, %x)", "si16", "si16"),
    ("sign(%x)", "f32", "f32"),
    ("sign(%x)", "si8", "si8"),
    ("nextafter(%x, %x)", "f32", "f32"),
    ("is_finite(%x)", "f16", "i1"),
    ("bitwise_xor(%x, %x)", "i1", "i1"),
    ("cumsum(%x) axis[1]", "f32", "f32"),
    ("cummax(%x) axis[0] reverse[true] exclusive[true]", "si32", "si32"),
    ("sort(%x) axis[1]", "f32", "f32"),
    ("reduce_precision(%x) exponent_bits[5] mantissa_bits[10]", "f32", "f32"),
]


def left(program):
    return {op.defn.short for block in program.blocks() for op in block.body}


@pytest.mark.parametrize("target", [A3, A5], ids=["a3", "a5"])
@pytest.mark.parametrize(("op", "source", "to"), CASES)
def test_what_replaces_an_op_computes_the_same(op, source, to, target):
    result = f"tensor<{to}, {SHAPE}>"
    before = function(f"%x: tensor<{source}, {SHAPE}>", result, f"%y = {op} -> {result}", returns="%y")
    after, _, refused = expanded(before, target, EXPANSIONS, LAST)
    short = op.partition("(")[0]
    assert not refused and (short not in left(after) or short.endswith("arithmetic"))
    assert short in left(before)  # the given program is not changed
    assert verify(after, found := Diagnostics()), found.items
    assert check(before, after, runs=2, options=RunOptions(engine="reference")).diverged == []


def test_an_op_that_tiles_have_stays():
    t = "tensor<f32, 6x5>"
    lines = (f"%e = exp(%x) -> {t}", "%y = reduce_max(%e) axes[1] -> tensor<f32, 6>")
    before = function(f"%x: {t}", "tensor<f32, 6>", *lines, returns="%y")
    after, _, _ = expanded(before, A3, EXPANSIONS, LAST)
    assert left(after) == left(before)


def test_what_is_refused_is_kept_with_its_reason():
    t = "tensor<si64, 6>"
    before = function(f"%x: {t}", t, f"%y = popcount(%x) -> {t}", returns="%y")
    after, _, refused = expanded(before, A3, EXPANSIONS, LAST)
    assert [(op.defn.short, v.message) for op, v in refused.items()] == [("popcount", "no tile op gives the bits of si64")]
    assert left(after) == {"popcount"}


def test_a_tuple_that_is_returned_is_returned_by_its_elements():
    pair = "(tensor<f32, 2>, tensor<si32, 2>)"
    before = function("%x: tensor<f32, 6>", pair, f"%y = top_k(%x) k[2] -> {pair}", returns="%y")
    after, _, _ = expanded(before, A3, EXPANSIONS, LAST)
    assert "top_k" not in left(after) and len(after.main.results) == 2
    assert after.main.attrs["output_names"] == ["y.0", "y.1"]
