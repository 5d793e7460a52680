"""Integers in MIND: what comparisons and quotients become, that they come back as themselves, and Div in profile `current`."""

from __future__ import annotations

import numpy as np
import pytest

from ptir_tools.convert import translate
from ptir_tools.core.arrays import from_literal
from ptir_tools.core.diagnostics import Diagnostics, Severity
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.source import Source
from ptir_tools.core.verify import verify
from ptir_tools.dialects import load_format
from ptir_tools.engines import run
from ptir_tools.engines.signature import signature
from tests.convert.translations import parse, text

PROFILES = ["seed", "current"]
DTYPES = {"si32": np.int32, "si64": np.int64}


def ends(bits: int) -> list[int]:
    """Integers next to the ends, the quarters and the middle of the range."""
    low, high, quarter = -(1 << bits - 1), (1 << bits - 1) - 1, 1 << bits - 2
    near = [low // 2 - 1, low // 2, low // 2 + 1, -5, -4, -2, -1, 0, 1, 2, 3, 4, quarter - 1, quarter, quarter + 1]
    return [low, low + 1, low + 2, *near, high - 1, high]


COUNT = len(ends(32))


def function(body: str, dtype: str = "si32", result: str = "", n: int = COUNT**2) -> str:
    t = f"tensor<{dtype}, {n}>"
    return (
        f"func @f(%x: {t}, %y: {t}) -> {result or t} {{\n{body.replace('T', t).replace('B', f'tensor<i1, {n}>')}\nreturn %r\n}}\n"
    )


BODIES = {
    "lt": ("%c = compare_lt(%x, %y) -> B\n%r = cast(%c) -> T", lambda x, y: x < y),
    "le": ("%c = compare_le(%x, %y) -> B\n%r = cast(%c) -> T", lambda x, y: x <= y),
    "gt": ("%c = compare_gt(%x, %y) -> B\n%r = cast(%c) -> T", lambda x, y: x > y),
    "ge": ("%c = compare_ge(%x, %y) -> B\n%r = cast(%c) -> T", lambda x, y: x >= y),
    "eq": ("%c = compare_eq(%x, %y) -> B\n%r = cast(%c) -> T", lambda x, y: x == y),
    "ne": ("%c = compare_ne(%x, %y) -> B\n%r = cast(%c) -> T", lambda x, y: x != y),
    "maximum": ("%r = maximum(%x, %y) -> T", max),
    "minimum": ("%r = minimum(%x, %y) -> T", min),
    "abs": ("%r = abs(%x) -> T", lambda x, y: abs(x)),
    "sign": ("%r = sign(%x) -> T", lambda x, y: (x > 0) - (x < 0)),
    "and": ("%r = bitwise_and(%x, %y) -> T", lambda x, y: x & y),
    "or": ("%r = bitwise_or(%x, %y) -> T", lambda x, y: x | y),
    "xor": ("%r = bitwise_xor(%x, %y) -> T", lambda x, y: x ^ y),
    "right": ("%r = shift_right_arithmetic(%x, dense<3> : T) -> T", lambda x, y: x >> 3),
    "left": ("%r = shift_left(%x, dense<3> : T) -> T", lambda x, y: x << 3),
    "remainder": ("%r = rem(%x, dense<-7> : T) -> T", lambda x, y: abs(x) % 7 * (1 if x > 0 else -1)),
    "modulo": ("%r = mod(%x, dense<-7> : T) -> T", lambda x, y: x % -7),
    "modulo by much": ("%r = mod(%x, dense<1610612736> : T) -> T", lambda x, y: x % 1610612736),
    "positive": ("%c = compare_gt(%x, dense<0> : T) -> B\n%r = cast(%c) -> T", lambda x, y: x > 0),
    "at most": ("%c = compare_le(%x, dense<0> : T) -> B\n%r = cast(%c) -> T", lambda x, y: x <= 0),
    "below": ("%c = compare_lt(%x, dense<-4> : T) -> B\n%r = cast(%c) -> T", lambda x, y: x < -4),
    "above": ("%c = compare_lt(dense<1073741824> : T, %x) -> B\n%r = cast(%c) -> T", lambda x, y: x > 2**30),
    "seventh": ("%r = div(%x, dense<7> : T) -> T", lambda x, y: abs(x) // 7 * (1 if x > 0 else -1)),
    "select": ("%c = compare_lt(%x, %y) -> B\n%n = neg(%y) -> T\n%r = select(%c, %x, %n) -> T", lambda x, y: x if x < y else -y),
}  # fmt: skip


def moved(before: Program, target: str, profile: str) -> Program:
    """The translation, read again from its text."""
    diagnostics = Diagnostics(before.source)
    made = translate(before, target, diagnostics, Options(profile=profile))
    assert made is not None, [d.message for d in diagnostics]
    found = Diagnostics(Source("t", text(made)))
    again = load_format(target).read(found.source, found, Options(profile=profile))
    assert again is not None and verify(again, found) and not found.errors, [d.message for d in found]
    return again


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", BODIES)
def test_integers_next_to_the_ends_of_the_range(name: str, dtype: str, profile: str) -> None:
    """The numbers are those of Python's integers, wrapped. What is one op comes back as one, except ops on bits."""
    body, meaning = BODIES[name]
    kind, bits = DTYPES[dtype], 8 * DTYPES[dtype]().itemsize
    x, y = (v.reshape(-1) for v in np.meshgrid(*[np.array(ends(bits), kind)] * 2))
    half = 1 << bits - 1
    expected = np.array([(int(meaning(int(a), int(b))) + half) % (2 * half) - half for a, b in zip(x, y, strict=True)], kind)
    before = parse(function(body, dtype), "ptir")
    there = moved(before, "mind", profile)
    back = moved(there, "ptir", profile)
    for program in (there, back):
        inputs = {
            p: {"x": x, "y": y}[p] for p in (program.main.attrs.get("input_names") or [v.name for v in program.main.params])
        }
        (found,) = run(program, inputs).values()
        np.testing.assert_array_equal(found, expected)
    if name not in ("and", "or", "xor", "right"):
        assert len(back.main.body) <= 4 * len(before.main.body), text(back)


NUMBERED = {
    "compare_lt": np.less, "compare_le": np.less_equal, "compare_gt": np.greater, "compare_ge": np.greater_equal,
    "compare_eq": np.equal, "compare_ne": np.not_equal,
    "maximum": np.maximum, "minimum": np.minimum,
    "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
}  # fmt: skip


# Tiny has si32 alone, and no profile.
TARGETS = [*(("mind", profile, dtype) for profile in PROFILES for dtype in DTYPES), ("tiny", "seed", "si32")]


@pytest.mark.parametrize(("target", "profile", "dtype"), TARGETS)
@pytest.mark.parametrize("name", NUMBERED)
def test_integers_and_a_number(name: str, dtype: str, profile: str, target: str) -> None:
    """On both sides of the op, next to the ends and the middle of the range, there and back."""
    kind, bits = DTYPES[dtype], 8 * DTYPES[dtype]().itemsize
    masks = [(1 << k) - 1 for k in (3, bits - 2, bits - 1)]
    numbers = [-1, *masks, 5] if name.startswith("bitwise") else ends(bits)
    t, flag = f"tensor<{dtype}, {COUNT}>", name.startswith("compare")
    lines, results = list[str](), list[str]()
    for i, c in enumerate(numbers):
        for side, operands in (("l", f"dense<{c}> : {t}, %x"), ("r", f"%x, dense<{c}> : {t}")):
            made = f"%{side}{i}"
            lines.append(f"{made}_ = {name}({operands}) -> tensor<{'i1' if flag else dtype}, {COUNT}>")
            lines.append(f"{made} = cast({made}_) -> {t}" if flag else f"{made} = add({made}_, dense<0> : {t}) -> {t}")
            results.append(made)
    before = parse(f"func @f(%x: {t}) -> ({', '.join([t] * len(results))}) {{\n" + "\n".join(lines)
                   + f"\nreturn {', '.join(results)}\n}}\n", "ptir")  # fmt: skip
    x = np.array(ends(bits), kind)
    expected = [np.asarray(v).astype(kind) for c in numbers for v in (NUMBERED[name](kind(c), x), NUMBERED[name](x, kind(c)))]
    diagnostics, constants = Diagnostics(before.source), {}
    there = translate(before, target, diagnostics, Options(profile=profile, constants=constants))
    assert there is not None, [d.message for d in diagnostics]
    back = translate(there, "ptir", diagnostics, Options(profile=profile, constants=constants))
    assert back is not None, [d.message for d in diagnostics]
    arrays = {k: from_literal(v) for k, v in constants.items()}
    for program in (there, back):
        wanted = {p.name for p in signature(program)}
        found = run(program, {k: v for k, v in {"x": x, **arrays}.items() if k in wanted}).values()
        for want, got in zip(expected, found, strict=True):
            np.testing.assert_array_equal(got, want)
    if flag or name in ("maximum", "minimum"):
        plain = sum(not op.defn.is_constant for op in back.main.body)
        assert plain <= 5 * len(results), text(back)  # comparisons come back with their cast


# The most operations that are no constants.
LENGTHS = {"lt": (16, 10), "ge": (17, 11), "eq": (9, 4), "positive": (11, 5), "maximum": (18, 12), "abs": (13, 7),
           "sign": (18, 7), "below": (11, 5), "above": (11, 5), "and": (27, 15), "seventh": (2, 1), "remainder": (5, 4),
           "modulo": (10, 8)}  # fmt: skip


@pytest.mark.parametrize("name", LENGTHS)
def test_formulas_are_short(name: str) -> None:
    for profile, most in zip(PROFILES, LENGTHS[name], strict=True):
        there = moved(parse(function(BODIES[name][0], n=6), "ptir"), "mind", profile)
        assert sum(not op.defn.is_constant for op in there.main.body) <= most, (profile, text(there))


def test_integers_do_not_grow_on_the_way_to_tiny() -> None:
    body = "%m = maximum(%x, %y) -> T\n%a = abs(%m) -> T\n%c = compare_lt(%a, %y) -> B\n%r = select(%c, %x, %a) -> T"
    before = parse(function(body), "ptir")
    there = moved(before, "mind", "seed")
    direct, through = moved(before, "tiny", "seed"), moved(there, "tiny", "seed")
    assert len(through.main.body) <= 2 * len(direct.main.body)


# What bounds x and y, and the most operations of a comparison, an equality, a maximum that follow.
BOUNDED = {
    "flags": ("%a = cast(%p) -> T\n%b = cast(%q) -> T", (2, 3, 4)),
    "remainders": ("%a = rem(%x, dense<7> : T) -> T\n%b = mod(%y, dense<-5> : T) -> T", (4, 5, 6)),
    "positions": ("%a = iota() axis[0] -> T\n%b = mod(%x, dense<9> : T) -> T", (4, 7, 6)),
    "clamped": ("%a = clamp(%x, dense<-3> : T, dense<900> : T) -> T\n%b = clamp(%y, dense<5> : T, dense<6> : T) -> T", (4, 7, 6)),
}  # fmt: skip
COMPARED = {
    "lt": ("%c = compare_lt(%a, %b) -> B\n%r = cast(%c) -> T", np.less, 0),
    "ge": ("%c = compare_ge(%a, %b) -> B\n%r = cast(%c) -> T", np.greater_equal, None),
    "eq": ("%c = compare_eq(%a, %b) -> B\n%r = cast(%c) -> T", np.equal, 1),
    "ne": ("%c = compare_ne(%a, %b) -> B\n%r = cast(%c) -> T", np.not_equal, None),
    "maximum": ("%r = maximum(%a, %b) -> T", np.maximum, 2),
    "minimum": ("%r = minimum(%a, %b) -> T", np.minimum, 2),
    "abs": ("%r = abs(%a) -> T", lambda a, b: abs(a), None),
    "cast": ("%w = cast(%a) -> tensor<f32, 25>\n%s = add(%w, %w) -> tensor<f32, 25>\n%r = reshape(%a) new_shape[25] -> T",
             lambda a, b: a, None),
}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", COMPARED)
@pytest.mark.parametrize("bounds", BOUNDED)
def test_what_is_known_of_integers_makes_formulas_short(bounds: str, name: str, dtype: str) -> None:
    given, most = BOUNDED[bounds]
    body, meaning, which = COMPARED[name]
    n = 25

    def source(body: str, last: str) -> str:
        made = function(f"{given}\n{body}", dtype, n=n).replace("return %r", f"return {last}")
        flags = "".join(f", %{p}: tensor<i1, {n}>" for p in "pq")
        results = ", ".join([f"tensor<{dtype}, {n}>"] * (last.count("%")))
        return made.replace(") -> tensor", f"{flags}) -> tensor", 1).replace(f"-> tensor<{dtype}, {n}> {{", f"-> ({results}) {{")

    kind = DTYPES[dtype]
    draw = np.random.default_rng(len(name))
    inputs: dict[str, np.ndarray] = {p: draw.integers(0, 2, n).astype(kind) for p in "pq"}
    inputs |= {p: draw.choice(np.array(ends(8 * kind().itemsize), kind), n) for p in "xy"}
    there = moved(parse(source(body, "%a, %b, %r"), "ptir"), "mind", "seed")
    with np.errstate(over="ignore"):
        a, b, found = run(there, {p: inputs[p].astype(np.int32) if p in "pq" else inputs[p] for p in "xypq"}).values()
        np.testing.assert_array_equal(found, meaning(a, b))
    if which is not None:
        without = moved(parse(source("%r = add(%a, %b) -> T", "%a, %b, %r"), "ptir"), "mind", "seed")
        count, base = (sum(not op.defn.is_constant for op in p.main.body) for p in (there, without))
        assert count - base <= most[which], text(there)


@pytest.mark.parametrize("kind", ["max", "min"])
def test_extremes_of_flags_are_a_mean(kind: str) -> None:
    source = f"""func @f(%p: tensor<i1, 8x3>) -> tensor<si32, 8> {{
  %x = cast(%p) -> tensor<si32, 8x3>
  %r = reduce_{kind}(%x) axes[1] -> tensor<si32, 8>
  return %r
}}
"""
    there = moved(parse(source, "ptir"), "mind", "seed")
    x = np.array(list(np.ndindex(2, 2, 2)), np.int32)
    (found,) = run(there, {"p": x}).values()
    np.testing.assert_array_equal(found, getattr(x, kind)(axis=1))
    assert sum(not op.defn.is_constant for op in there.main.body) <= 3


QUOTIENT = "%0 = Input {name=x} : tensor<f32[2]>\n%1 = Div (%0, %0) : tensor<f32[2]>\noutputs: %1\n"


@pytest.mark.parametrize("spelled", ["Div (%0, %0)", "BinOp(Div, %0, %0)"])
def test_div_is_of_the_current_profile(spelled: str) -> None:
    for profile, codes in (("seed", ["E6003"]), ("current", [])):
        diagnostics = Diagnostics(Source("t", QUOTIENT.replace("Div (%0, %0)", spelled)))
        load_format("mind").read(diagnostics.source, diagnostics, Options(profile=profile))
        assert [d.code for d in diagnostics if d.severity is Severity.ERROR] == codes


SOFTMAX = """func @f(%x: tensor<f32, 2x4>) -> tensor<f32, 2x4> {
  %e = exp(%x) -> tensor<f32, 2x4>
  %z = reduce_sum(%e) axes[1] keepdims[true] -> tensor<f32, 2x1>
  %b = broadcast_to(%z) result_shape[2, 4] -> tensor<f32, 2x4>
  %r = div(%e, %b) -> tensor<f32, 2x4>
  return %r
}
"""


def test_a_softmax_has_one_op_per_op() -> None:
    there = moved(parse(SOFTMAX, "ptir"), "mind", "current")
    assert [op.defn.short for op in there.main.body] == ["Exp", "Sum", "Div"]
    mic = "".join(load_format("mic").write(there, Diagnostics(), Options()))
    assert " div N" in mic


def test_zero_times_infinity_is_nan_next_to_an_extent_of_1() -> None:
    module = "%0 = Input {name=x} : tensor<f32[2, 1]>\n%1 = Input {name=y} : tensor<f32[1]>\n%2 = Dot (%0, %1)\noutputs: %2\n"
    (found,) = run(parse(module, "mind"), {"x": np.array([[np.inf], [1]], np.float32), "y": np.zeros(1, np.float32)}).values()
    np.testing.assert_array_equal(found, [np.nan, 0])
