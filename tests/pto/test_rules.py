"""Type rules of PTO ops, and scalar arithmetic by hand."""

import itertools
import operator

import numpy as np
import pytest

from ptir_tools.core.arrays import numpy_dtype
from ptir_tools.core.declare import OPS
from ptir_tools.core.dtypes import F32, INDEX, SI8, SI16, SI32, SI64
from ptir_tools.core.evaluate import Context, evaluate
from ptir_tools.core.ir import Value, create
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.pto.ops import scalar as scalars
from ptir_tools.dialects.pto.types import scalar
from tests.pto.programs import check, codes, good, module, run


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


@pytest.mark.parametrize("rows", [3, 4, 5])
@pytest.mark.parametrize("columns", [3, 4, 8])
def test_a_padded_tile_is_no_smaller_than_what_it_is_made_of(rows, columns):
    line = f"%r = pto.tile.fillpad.expand %y {{pad = #pto.pad<Zero>}} : tile<4x4xf32> -> tile<{rows}x{columns}xf32>"
    _, found = check(module("%y: tile<4x4xf32>", line))
    assert [d.code for d in found] == ["ShapeMismatch"] * (rows < 4 or columns < 4)


@pytest.mark.parametrize("size", range(4))
@pytest.mark.parametrize("step", range(3))
def test_a_window_is_inside_its_memref(size, step):
    """With each number known, and with each known only when the program runs."""
    view = f"pto.memref<{size or '?'}xf32, strided<[{step or '?'}], offset: ?>>"
    line = f"%v = pto.memref.subview %m[%o] [%s] [%k] : pto.memref<4xf32> to {view}"
    for start in range(-1, 5):
        inside = start >= 0 < size and step > 0 and all(i in range(4) for i in range(start, start + size * step, step))
        made = view.replace("offset: ?", f"offset: {start}") if inside else view
        numbers = [f"%{n} = pto.constant {x} : index" for n, x in zip("osk", (start, size, step), strict=True)]
        early = module("%m: pto.memref<4xf32>", *numbers, line.replace(view, made))
        assert codes(early) == ([] if inside else ["OutOfBounds"]), start
        late = module("%m: pto.memref<4xf32>, %o: index, %s: index, %k: index", line)
        given = {"m": np.zeros(4, np.float32), "o": np.int64(start), "s": np.int64(size), "k": np.int64(step)}
        if inside:
            run(late, given)
        else:
            with pytest.raises(Violation, match="OutOfBounds"):
                run(late, given)


@pytest.mark.parametrize("carried", range(3))
@pytest.mark.parametrize("given", range(3))
def test_a_loop_yields_what_it_carries(carried, given):
    """One without results, too, whose text does not say how many there are."""
    names = ", ".join(f"%a{i} = %c0" for i in range(carried))
    head = f"iter_args({names}) -> ({', '.join(['index'] * carried)}) " if carried else ""
    results = ", ".join(f"%r{i}" for i in range(carried)) + " = " if carried else ""
    ends = f"scf.yield {', '.join(['%i'] * given)} : {', '.join(['index'] * given)}" if given else "scf.yield"
    found = codes(module("", f"{results}scf.for %i = 0 to 4 step 1 {head}{{", ends, "}"))
    assert set(found) == (set() if carried == given else {"TypeMismatch"})


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


def of_bits(fn):
    """`fn` of the bits of two integers, which are not negative."""
    return lambda a, b, bits: fn(a % (1 << bits), b % (1 << bits))


def toward_zero(a, b):
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


INTEGERS = {
    "addi": lambda a, b, _: a + b, "subi": lambda a, b, _: a - b, "muli": lambda a, b, _: a * b,
    "divsi": lambda a, b, _: toward_zero(a, b), "remsi": lambda a, b, _: a - toward_zero(a, b) * b,
    "floordivsi": lambda a, b, _: a // b, "ceildivsi": lambda a, b, _: -(-a // b),
    "divui": of_bits(lambda a, b: a // b), "remui": of_bits(lambda a, b: a % b),
    "minsi": lambda a, b, _: min(a, b), "maxsi": lambda a, b, _: max(a, b), "minui": of_bits(min), "maxui": of_bits(max),
    "andi": lambda a, b, _: a & b, "ori": lambda a, b, _: a | b, "xori": lambda a, b, _: a ^ b,
    "shli": lambda a, b, _: a << b, "shrsi": lambda a, b, _: a >> b, "shrui": of_bits(lambda a, b: a >> b),
}  # fmt: skip
SIGNED = {"eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge}


def evaluated(name, dtype, a, b, **attrs):
    """A scalar op of two numbers, as its declaration computes it."""
    t = scalar(dtype)
    (op,) = [create(OPS[f"pto.{name}"], (Value(t, "a"), Value(t, "b")), attrs)]
    (found,) = evaluate(op, [np.asarray(x, numpy_dtype(dtype)) for x in (a, b)], Context())
    return found


@pytest.mark.parametrize("dtype", [SI8, SI16, SI32, SI64, INDEX], ids=str)
@pytest.mark.parametrize("name", INTEGERS)
def test_integers_are_those_of_python(name, dtype):
    bits = 8 * numpy_dtype(dtype).itemsize
    numbers = [0, 1, -1, 2, 3, -7, 100, -(1 << bits - 1), (1 << bits - 1) - 1]
    for a, b in itertools.product(numbers, numbers):
        if (b == 0 and ("div" in name or "rem" in name)) or (name.startswith("sh") and not 0 <= b < bits):
            continue
        want = INTEGERS[name](a, b, bits) % (1 << bits)
        assert int(evaluated(name, dtype, a, b)) % (1 << bits) == want, (a, b)


@pytest.mark.parametrize("b", [2, 3, -7])
def test_the_least_integer_divided_and_rounded_up(b):
    assert int(evaluated("ceildivsi", SI8, -128, b)) == -(128 // b)


@pytest.mark.parametrize("dtype", [SI8, SI32, SI64, INDEX, F32], ids=str)
@pytest.mark.parametrize("sign", ["", "s", "u", "o"])
@pytest.mark.parametrize("name", SIGNED)
def test_comparisons_are_those_of_python(name, sign, dtype):
    """Of unsigned integers where the name begins with u; a NaN is unlike all."""
    predicate, whole = sign + name, dtype is not F32
    if predicate not in scalars._PREDICATES or whole != (sign in ("", "s", "u") and dtype is not F32):
        return
    bits = 8 * numpy_dtype(dtype).itemsize
    numbers = [0, 1, -1, 5, -(1 << bits - 1), (1 << bits - 1) - 1] if whole else [0.0, -1.5, 2.0, np.inf, np.nan]
    for a, b in itertools.product(numbers, numbers):
        x, y = (a % (1 << bits), b % (1 << bits)) if sign == "u" and whole else (a, b)
        want = SIGNED[name](x, y) and not (predicate == "one" and (a != a or b != b))
        assert bool(evaluated("cmpi" if whole else "cmpf", dtype, a, b, predicate=predicate)) == want, (a, b)
