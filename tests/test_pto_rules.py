"""Type rules of PTO ops, and scalar arithmetic by hand."""

import numpy as np
import pytest
from pto_programs import check, good, module, run


@pytest.mark.parametrize(
    "statement, code",
    [
        ("%r = pto.tile.exp %x : tile<4x4xi32>", "TypeMismatch"),
        ("%r = pto.tile.and %y, %y : tile<4x4xf32>", "TypeMismatch"),
        ("%r = pto.tile.add %x, %y : tile<4x4xi32>", "TypeMismatch"),
        ("%r = pto.tile.cvt %x {rmode = #pto.round_mode<CAST_UP>} : tile<4x4xi32> -> tile<4x4xf32>", "TypeMismatch"),
        ("%r = pto.tile.cmp %x, %x {cmpMode = #pto.cmp<XX>} : tile<4x4xi32> -> tile<4x4xi8>", "TypeMismatch"),
        ("%r = pto.tile.cmp %x, %x : tile<4x4xi32> -> tile<4x4xf32>", "TypeMismatch"),
        ("%r = pto.tile.rowsum %y : tile<4x4xf32> -> tile<1x4xf32>", "ShapeMismatch"),
        ("%r = pto.tile.rowexpand %y : tile<4x4xf32> -> tile<4x4xf32>", "ShapeMismatch"),
        ("%r = pto.tile.trans %y : tile<4x4xf32> -> tile<4x8xf32>", "ShapeMismatch"),
        ("%r = pto.tile.reshape %y : tile<4x4xf32> -> tile<4x8xf32>", "ShapeMismatch"),
        ("%r = pto.tile.mov.m2l %v : tile<4x4xf32> -> tile<4x4xf32, #pto.tile_info<loc=Left>>", "InvalidLocation"),
        ("%r = pto.tile.matmul %y, %x : tile<4x4xf32>, tile<4x4xi32> -> tile<4x4xf32>", "TypeMismatch"),
        ("%r = pto.tile.matmul %y, %z : tile<4x4xf32>, tile<8x4xf32> -> tile<4x4xf32>", "ShapeMismatch"),
        ("%r = pto.tile.gather %y : tile<4x4xf32> -> tile<4x4xf32>", "TypeMismatch"),
        ("%r = pto.tile.gather %y, %y : tile<4x4xf32> -> tile<4x4xf32>", "TypeMismatch"),
        ("%r = pto.tile.fillpad %y {pad = #pto.pad<One>} : tile<4x4xf32> -> tile<4x4xf32>", "TypeMismatch"),
        ("%r = pto.tile.expands %i : index, tile<4x4xf32>", "TypeMismatch"),
        ("%r = pto.tile.adds %y, %i : tile<4x4xf32>, index", "TypeMismatch"),
        ("%r = pto.tile.extract %y[5, 0] : tile<4x4xf32> -> tile<4x4xf32>", "OutOfBounds"),
        ("%r = pto.tile.mrgsort %y {blockLen = 64} : tile<4x4xf32> -> tile<4x4xf32>", "ShapeMismatch"),
        ("%r = pto.tile.sort32 %x : tile<4x4xi32> -> (tile<4x4xi32>, tile<4x4xi32>)", "TypeMismatch"),
        ("pto.sync.op #pto.op<TNOTHING>", "TypeMismatch"),
    ],
)
def test_type_rules(statement, code):
    parameters = "%x: tile<4x4xi32>, %y: tile<4x4xf32>, %z: tile<8x4xf32>, %i: index, %v: tile<4x4xf32, #pto.tile_info<loc=Vec>>"
    _, found = check(module(parameters, statement))
    assert [d.code for d in found] == [code], [(d.code, d.message) for d in found]


SCALARS = [
    ("addi %a, %b", 2**31 - 1, 1, -(2**31)),
    ("muli %a, %b", 2**30, 4, 0),
    ("divsi %a, %b", -7, 2, -3),
    ("divui %a, %b", -7, 2, 2147483644),
    ("remsi %a, %b", -7, 2, -1),
    ("floordivsi %a, %b", -7, 2, -4),
    ("ceildivsi %a, %b", 7, 2, 4),
    ("minsi %a, %b", -1, 1, -1),
    ("maxui %a, %b", -1, 1, -1),
    ("xori %a, %b", 6, 3, 5),
    ("shli %a, %b", 3, 4, 48),
    ("shrsi %a, %b", -16, 2, -4),
    ("shrui %a, %b", -16, 28, 15),
]


@pytest.mark.parametrize("text, a, b, want", SCALARS)
def test_scalar_integers(text, a, b, want):
    lines = (
        f"%r = arith.{text} : i32",
        "%t = pto.tile.expands %r : i32, tile<1x1xi32>",
        "pto.tile.store %t, %out[0, 0] : pto.memref<1x1xi32>, tile<1x1xi32>",
    )
    source = module("%a: i32, %b: i32, %out: pto.memref<1x1xi32>", *lines)
    made = run(good(source), {"a": np.int32(a), "b": np.int32(b), "out": np.zeros((1, 1), np.int32)})
    assert made["out"][0, 0] == want
