"""Range analysis: the range of an op is that of its results for all values of its operands, or it is not known."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from math import inf

import pytest

from ptir_tools.convert import ranges
from ptir_tools.convert.ranges import Range, Ranges
from ptir_tools.core.ir import Op
from tests.convert.translations import parse

# Ranges of operands: around 0, on one side of it, at it, of one number.
SPANS = [(-3, 4), (2, 5), (-6, -2), (0, 3), (-4, 0), (0, 0), (3, 3), (-1, -1)]


def program(body: str, params: str = "", result: str = "tensor<si64, 2>", regions: str = "") -> Ranges:
    """The ranges of a function whose result is `%r`."""
    made = parse(
        f"program @f (spec_version = ptir.v0.4) {{\nfunc @f({params}) -> {result} {{\n{body}\nreturn %r\n}}\n{regions}}}\n",
        "ptir",
    )
    return Ranges(made.main)


def ends(name: str, span: tuple[int, int], dtype: str = "si64") -> str:
    """A constant whose elements are the ends of a range."""
    return f"%{name} = constant() value[dense<[{span[0]}, {span[1]}]>] -> tensor<{dtype}, 2>\n"


def of_result(found: Ranges) -> Range | None:
    return found.of(*found.blocks[0].results)


T = "tensor<si64, 2>"
# Ops of elements: the line, and the op in Python's integers.
ELEMENTS: dict[str, tuple[str, Callable[..., int]]] = {
    "add": ("add(%a, %b)", lambda a, b: a + b),
    "sub": ("sub(%a, %b)", lambda a, b: a - b),
    "mul": ("mul(%a, %b)", lambda a, b: a * b),
    "maximum": ("maximum(%a, %b)", max),
    "minimum": ("minimum(%a, %b)", min),
    "neg": ("neg(%a)", lambda a: -a),
    "abs": ("abs(%a)", abs),
    "clamp": ("clamp(%a, %b, %c)", lambda a, b, c: min(max(a, b), c)),
    "select": ("select(%m, %a, %b)", None),  # type: ignore[dict-item]  # either operand
}


@pytest.mark.parametrize("short", ELEMENTS)
def test_an_op_of_elements_has_the_range_of_its_results(short: str) -> None:
    """By all numbers of the operands: no wider, no narrower."""
    line, function = ELEMENTS[short]
    count = sum(f"%{name}" in line for name in "abc")
    for spans in itertools.product(SPANS if count < 3 else SPANS[:5], repeat=count):
        body = "".join(ends(name, span) for name, span in zip("abc", spans, strict=False))
        found = of_result(program(f"{body}%r = {line} -> {T}", "%m: tensor<i1, 2>"))
        values = [range(low, high + 1) for low, high in spans]
        results = list(itertools.chain(*values)) if short == "select" else [function(*v) for v in itertools.product(*values)]
        assert found == (min(results), max(results)), spans


def truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


@pytest.mark.parametrize("n", [-7, -2, -1, 1, 2, 3, 100])
def test_division_by_a_number(n: int) -> None:
    """A quotient's range is exact. A remainder is smaller than the divisor and has the sign of the dividend, of `mod` that of the
    divisor."""
    for span in SPANS:
        values = range(span[0], span[1] + 1)
        found = {
            short: of_result(program(f"{ends('a', span)}%r = {short}(%a, dense<{n}> : {T}) -> {T}"))
            for short in ("div", "rem", "mod")
        }
        quotients = [truncated(a, n) for a in values]
        assert found["div"] == (min(quotients), max(quotients))
        for short, of in (("rem", lambda a: a - n * truncated(a, n)), ("mod", lambda a: a % n)):
            below, above = (n < 0, n > 0) if short == "mod" else (span[0] < 0, span[1] > 0)
            assert found[short] == ((1 - abs(n)) * below, (abs(n) - 1) * above)
            assert all(found[short][0] <= of(a) <= found[short][1] for a in values)  # type: ignore[index]


def test_division_by_several_numbers_is_not_known() -> None:
    whole = (-(2**63), 2**63 - 1)
    for short in ("div", "rem", "mod"):
        assert of_result(program(f"{ends('a', (1, 9))}{ends('b', (2, 3))}%r = {short}(%a, %b) -> {T}")) == whole


# Ops that give elements of their operand: the lines, and the type of the result.
SAME = {
    "reshape": ("reshape(%a) new_shape[1, 2]", "tensor<si64, 1x2>"),
    "transpose": ("transpose(%a) perm[0]", T),
    "broadcast_to": ("broadcast_to(%a) result_shape[3, 2]", "tensor<si64, 3x2>"),
    "slice": ("slice(%a) starts[1] sizes[1]", "tensor<si64, 1>"),
    "tile": ("tile(%a) repeats[2]", "tensor<si64, 4>"),
    "stop_gradient": ("stop_gradient(%a)", T),
    "concat": ("concat(%a, %b) axis[0]", "tensor<si64, 4>"),
    "take": ("take(%a, %i)", T),
    "gather": ("gather(%a, %i) axis[0]", T),
    "dynamic_slice": ("dynamic_slice(%a, %s) sizes[1]", "tensor<si64, 1>"),
    "reduce_max": ("reduce_max(%a) axes[0] keepdims[false]", "tensor<si64>"),
    "reduce_min": ("reduce_min(%a) axes[0] keepdims[false]", "tensor<si64>"),
    "cast": ("cast(%a)", "tensor<si32, 2>"),
}


@pytest.mark.parametrize("short", SAME)
def test_an_op_that_moves_elements_keeps_their_range(short: str) -> None:
    """Whatever indices are: they move elements only."""
    line, result = SAME[short]
    params = "%i: tensor<si32, 2>, %s: tensor<si32, 1>"
    for span in SPANS:
        found = of_result(program(f"{ends('a', span)}{ends('b', (-9, 11))}%r = {line} -> {result}", params, result))
        assert found == (span if short != "concat" else (min(span[0], -9), max(span[1], 11)))


@pytest.mark.parametrize("short", ["reduce_max", "reduce_min"])
def test_the_extreme_of_nothing_is_not_known(short: str) -> None:
    """It is the end of the dtype."""
    line = f"%r = {short}(%a) axes[0] keepdims[false]"
    empty = "%a = constant() value[dense<[]>] -> tensor<si64, 0>\n"
    assert of_result(program(f"{empty}{line} -> tensor<si64>", "", "tensor<si64>")) == (-(2**63), 2**63 - 1)
    symbolic = f"{ends('b', (2, 5))}%c = slice(%b) starts[0] sizes[1] -> tensor<si64, 1>\n"
    symbolic += "%a = broadcast_to(%c) result_shape[?N] -> tensor<si64, ?N>\n"
    found = of_result(program(f"{symbolic}{line} -> tensor<si64>", "%x: tensor<f32, ?N>", "tensor<si64>"))
    assert found == (-(2**63), 2**63 - 1)


@pytest.mark.parametrize(("accum", "fits"), [("si32", True), ("si16", True), ("si8", False)])
def test_a_sum_that_may_wrap_in_its_accumulator_is_not_known(accum: str, fits: bool) -> None:
    line = f"%r = reduce_sum(%a) axes[0] keepdims[false] accum_dtype[{accum}] out_dtype[si64] -> tensor<si64>"
    found = of_result(program(f"{ends('a', (60, 100), 'si8')}{line}", "", "tensor<si64>"))
    assert found == ((0, 200) if fits else (-(2**63), 2**63 - 1))


def test_what_is_an_index_and_an_element_too_is_no_index_alone() -> None:
    """A large index is out of bounds anyway; a large element is what it is."""
    for line, alone in (("take(%b, %a)", True), ("take(%a, %a)", False), ("gather(%a, %a) axis[0]", False)):
        found = program(f"%r = {line} -> {T}", f"%a: {T}, %b: {T}")
        assert found.fits(found.blocks[0].params[0]) is alone, line


def test_fill_belongs_to_the_range() -> None:
    for span, fill in itertools.product(SPANS, (-9, 0, 9)):
        low, high = min(span[0], fill), max(span[1], fill)
        padded = f"{ends('a', span)}%r = pad(%a) low[1] high[2] pad_value[{fill}] -> tensor<si64, 5>"
        assert of_result(program(padded, "", "tensor<si64, 5>")) == (low, high)
        image = f"{ends('a', span)}%b = reshape(%a) new_shape[1, 2, 1] -> tensor<si64, 1x2x1>\n"
        patches = (
            f"%r = extract_patches(%b) window[2] strides[1] dilation[1] padding[(1, 1)] pad_value[{fill}] -> tensor<si64, 1x3x2>"
        )
        assert of_result(program(image + patches, "", "tensor<si64, 1x3x2>")) == (low, high)


def test_a_cast_saturates() -> None:
    ends_of = {"si8": (-128, 127), "ui8": (0, 255), "si32": (-(2**31), 2**31 - 1), "ui32": (0, 2**32 - 1), "si64": (-inf, inf)}
    for dtype, (least, most) in ends_of.items():
        for low, high in [(-300, 300), (5, 9), (-9, -5), (2**31 - 1, 2**31), (-(2**31) - 1, 0), (2**33, 2**40)]:
            found = of_result(program(f"{ends('a', (low, high))}%r = cast(%a) -> tensor<{dtype}, 2>", "", f"tensor<{dtype}, 2>"))
            assert found == (min(max(low, least), most), min(max(high, least), most)), dtype


def test_what_may_wrap_is_any_number() -> None:
    """At the ends of the dtype: one further, and the result may be any."""
    for dtype, low, high in (("si64", -(2**63), 2**63 - 1), ("si32", -(2**31), 2**31 - 1), ("ui32", 0, 2**32 - 1)):
        t = f"tensor<{dtype}, 2>"
        for span, more, known in [
            ((high - 5, high - 1), 1, (high - 4, high)),
            ((high - 5, high), 1, (low, high)),
            ((high - 5, high - 1), 2, (low, high)),
        ]:
            assert of_result(program(f"{ends('a', span, dtype)}%r = add(%a, dense<{more}> : {t}) -> {t}", "", t)) == known
        for span, known in [((low + 1, low + 5), (low, low + 4)), ((low, low + 5), (low, high))]:
            assert of_result(program(f"{ends('a', span, dtype)}%r = sub(%a, dense<1> : {t}) -> {t}", "", t)) == known


def partial_sums(span: Range, count: int) -> Range:
    return min(0, *(n * span[0] for n in range(count + 1))), max(0, *(n * span[1] for n in range(count + 1)))


def test_a_sum_includes_its_partial_sums() -> None:
    """Over one axis, over all, and of products; what is not reduced does not count."""
    for span in SPANS:
        wide = f"{ends('a', span)}%b = broadcast_to(%a) result_shape[5, 2] -> tensor<si64, 5x2>\n"
        for axes, shape, count in (("0", "2", 5), ("1", "5", 2), ("0, 1", "", 10)):
            t = f"tensor<si64, {shape}>" if shape else "tensor<si64>"
            found = of_result(program(f"{wide}%r = reduce_sum(%b) axes[{axes}] keepdims[false] -> {t}", "", t))
            assert found == partial_sums(span, count)
        for other in SPANS:
            products = [x * y for x in range(span[0], span[1] + 1) for y in range(other[0], other[1] + 1)]
            right = f"{ends('c', other)}%d = broadcast_to(%c) result_shape[5, 2] -> tensor<si64, 5x2>\n"
            dot = "%r = dot_general(%b, %d) contract_lhs[0] contract_rhs[0] -> tensor<si64, 2x2>"
            found = of_result(program(wide + right + dot, "", "tensor<si64, 2x2>"))
            assert found == partial_sums((min(products), max(products)), 5)


def test_a_sum_over_a_symbol_is_not_known() -> None:
    found = program("%r = reduce_sum(%x) axes[0] keepdims[false] -> tensor<si64, 2>", "%x: tensor<si64, ?Nx2>")
    assert of_result(found) == (-(2**63), 2**63 - 1)


def test_positions() -> None:
    """Of the axis that is numbered or searched."""
    cases = [
        ("iota() axis[0]", "tensor<si64, 5x3>", (0, 4)),
        ("iota() axis[1]", "tensor<si64, 5x3>", (0, 2)),
        ("iota() axis[-1]", "tensor<si64, 5x3>", (0, 2)),
        ("iota() axis[1]", "tensor<si64, 5x0>", (0, 0)),
        ("argmax(%x) axis[0] keepdims[false]", "tensor<si32, 3>", (0, 6)),
        ("argmin(%x) axis[1] keepdims[true]", "tensor<si32, 7x1>", (0, 2)),
        ("argmax(%y) axis[1] keepdims[false]", "tensor<si32, ?N>", (0, 2)),
        ("argmax(%y) axis[0] keepdims[false]", "tensor<si32, 3>", (-(2**31), 2**31 - 1)),
    ]
    for line, t, known in cases:
        assert of_result(program(f"%r = {line} -> {t}", "%x: tensor<f32, 7x3>, %y: tensor<f32, ?Nx3>", t)) == known, line


def test_positions_of_the_greatest() -> None:
    """The second result of `top_k`; the first has the elements."""
    line = "%t = top_k(%x) k[2] axis[1] -> (tensor<si32, 7x2>, tensor<si32, 7x2>)\n"
    for index, dtype, known in ((1, "si32", (0, 4)), (0, "si32", (-(2**31), 2**31 - 1))):
        t = f"tensor<{dtype}, 7x2>"
        found = program(f"{line}%r = reshape(%t[{index}]) new_shape[7, 2] -> {t}", "%x: tensor<si32, 7x5>", t)
        assert of_result(found) == known


def test_what_has_no_integers_has_no_range() -> None:
    found = program("%r = neg(%x) -> tensor<f32, 2>", "%x: tensor<f32, 2>", "tensor<f32, 2>")
    assert of_result(found) is None and not found.find()
    assert of_result(program("%r = cast(%x) -> tensor<si64, 2>", "%x: tensor<f32, 2>")) == (-(2**63), 2**63 - 1)
    assert of_result(program("%r = bitwise_not(%m) -> tensor<i1, 2>", "%m: tensor<i1, 2>", "tensor<i1, 2>")) == (0, 1)
    assert of_result(program("%r = cast(%m) -> tensor<si64, 2>", "%m: tensor<i1, 2>")) == (0, 1)
    assert of_result(program("%r = neg(%x) -> tensor<si64, 2>", "%x: tensor<si64, 2>")) == (-(2**63), 2**63 - 1)


@pytest.mark.parametrize("short", [*ELEMENTS, *SAME])
def test_the_range_by_the_ops_before_is_the_same(short: str) -> None:
    """Where no more ops are between than are looked at; where there are more, any number."""
    line, result = (ELEMENTS[short][0], T) if short in ELEMENTS else SAME[short]
    literal = line.replace("%b", f"dense<[-2, 9]> : {T}")  # an operand in line, too
    for end in (f"%r = {line} -> {result}", f"%r = {literal} -> {result}"):
        body = f"{ends('a', (-3, 4))}{ends('b', (-2, 9))}{ends('c', (2, 5))}{end}"
        found = program(body, "%m: tensor<i1, 2>, %i: tensor<si32, 2>, %s: tensor<si32, 1>", result)
        (r,) = found.blocks[0].results
        assert ranges.nearby(r) == found.of(r)
    for count, known in ((11, (-4, 3)), (12, (-(2**63), 2**63 - 1))):
        chain = "".join(f"%a{k + 1} = stop_gradient(%a{k}) -> {T}\n" for k in range(count - 1)).replace("%a0)", "%a)")
        found = program(f"{ends('a', (-3, 4))}{chain}%r = neg(%a{count - 1}) -> {T}")
        assert ranges.nearby(*found.blocks[0].results) == known, count


def test_every_rule_has_a_test() -> None:
    assert set(ranges._RULES) == {*ELEMENTS, *SAME, "pad", "extract_patches", "reduce_sum", "dot_general", "div", "rem", "mod"}


def test_integers_fit_up_to_the_ends_of_i32() -> None:
    for span, known in [
        ((-(2**31), 2**31 - 1), True), ((-(2**31) - 1, 0), False), ((0, 2**31), False), ((2**31, 2**40), False),
        ((-(2**40), -(2**31) - 1), False), ((0, 0), True),
    ]:  # fmt: skip
        found = program(f"{ends('a', span)}%r = stop_gradient(%a) -> {T}")
        assert found.fits(*found.blocks[0].results) is known, span


INDICES = "%i: tensor<si64, 2>, %x: tensor<f32, 5>, %m: tensor<i1, 2>"
# What is done with %i, and whether it is an index only.
USES = {
    "an index": ("%r = take(%x, %i) -> F", True),
    "moved": ("%j = reshape(%i) new_shape[2] -> T\n%r = take(%x, %j) -> F", True),
    "moved twice": ("%j = reshape(%i) new_shape[2] -> T\n%k = stop_gradient(%j) -> T\n%r = take(%x, %k) -> F", True),
    "added": ("%j = add(%i, dense<0> : T) -> T\n%r = take(%x, %j) -> F", False),
    "added behind another": ("%j = add(dense<0> : T, %i) -> T\n%r = take(%x, %j) -> F", False),
    "subtracted": ("%j = sub(dense<0> : T, %i) -> T\n%r = take(%x, %j) -> F", False),
    "chosen last": ("%j = select(%m, dense<0> : T, %i) -> T\n%r = take(%x, %j) -> F", True),
    "chosen": ("%j = select(%m, %i, dense<0> : T) -> T\n%r = take(%x, %j) -> F", True),
    "cast": ("%j = cast(%i) -> tensor<si32, 2>\n%r = take(%x, %j) -> F", True),
    "two indices": ("%p = take(%x, %i) -> F\n%q = gather(%x, %i) axis[0] -> F\n%r = add(%p, %q) -> F", True),
    "a number, too": ("%p = take(%x, %i) -> F\n%q = cast(%i) -> F\n%r = add(%p, %q) -> F", False),
    "a number first": ("%q = cast(%i) -> F\n%p = take(%x, %i) -> F\n%r = add(%p, %q) -> F", False),
    "computed with": ("%j = add(%i, %i) -> T\n%r = take(%x, %j) -> F", False),
    "a mask": ("%c = cast(%i) -> tensor<i1, 2>\n%f = cast(%c) -> F\n%p = take(%x, %i) -> F\n%r = add(%p, %f) -> F", False),
    "taken from": ("%r = take(%i, %m2) -> T", False),
}  # fmt: skip


@pytest.mark.parametrize("use", USES)
def test_what_is_only_an_index_fits(use: str) -> None:
    """An index out of bounds is an error in either width, so its range does not matter."""
    body, known = USES[use]
    result = T if use == "taken from" else "tensor<f32, 2>"
    text = body.replace("F", "tensor<f32, 2>").replace("T", T)
    found = program(text, f"{INDICES}, %m2: tensor<si32, 2>", result)
    (i,) = [p for p in found.blocks[0].params if p.name == "i"]
    assert [found.fits(i), found.fits(i)] == [known, known]


def test_moves_are_followed_once() -> None:
    """Each value has two uses in the next op, so that following each use would never end."""
    body = "".join(f"%j{k + 1} = select(%m, %j{k}, %j{k}) -> {T}\n" for k in range(60)).replace("%j0", "%i")
    for end, known in (("%r = take(%x, %j60) -> tensor<f32, 2>", True), ("%r = cast(%j60) -> tensor<f32, 2>", False)):
        found = program(f"{body}{end}", INDICES, "tensor<f32, 2>")
        assert found.fits(found.blocks[0].params[0]) is known


def test_numbers_that_are_not_there_do_not_fit() -> None:
    found = program(f"%r = add(%a, dense<?> : {T}) -> {T}", f"%a: {T}")
    (op,) = found.blocks[0].body
    assert found.of(op.operands[1]) is None and not found.fits(op.operands[1])


def test_a_result_is_a_number() -> None:
    """Also one that is an index elsewhere."""
    body = "%p = take(%x, %i) -> tensor<f32, 2>\n%r = reshape(%i) new_shape[2] -> tensor<si64, 2>"
    found = program(body, INDICES)
    assert not found.fits(found.blocks[0].params[0])


def test_regions_are_read_once() -> None:
    """Each has two uses of the next: read for each use, they would be 30,000."""
    depth = 14
    regions = "".join(
        f"region ^r{k}(%a: {T}) -> {T} {{\n%c = iota() axis[0] -> {T}\n%p = constant() value[dense<true>] -> tensor<i1>\n"
        + (f"%u = cond(%p, %a) true_region[^r{k + 1}] false_region[^r{k + 1}] -> {T}\n%v = cond(%p, %u) true_region[^r{k + 1}]"
           f" false_region[^r{k + 1}] -> {T}\n" if k < depth else f"%v = add(%a, %c) -> {T}\n")
        + "return %v\n}\n"
        for k in range(depth + 1)
    )  # fmt: skip
    body = f"%r = cond(%m, %a) true_region[^r0] false_region[^r0] -> {T}"
    found = program(body, f"%m: tensor<i1>, %a: {T}", T, regions)
    assert len(found.blocks) == depth + 2
    inner = [op for block in found.blocks for op in block.body if op.defn.short == "iota"]
    assert [found.of(op.result) for op in inner] == [(0, 1)] * (depth + 1)


def by(found: Ranges, short: str) -> Op:
    (op,) = [op for op in found.blocks[0].body if op.defn.short == short]
    return op


def test_a_sum_fits_before_it_is_cast() -> None:
    """`sum_fits` asks for the sum itself, which an accumulator of i64 holds where i32 does not."""
    for value, known in ((2**30, False), (2**29, True), (-(2**30) - 1, False), (-(2**30), True)):
        low, high = min(value, 0), max(value, 0)
        line = "%r = reduce_sum(%a) axes[0] keepdims[false] -> tensor<si64>"
        found = program(f"{ends('a', (low, high))}{line}", "", "tensor<si64>")
        assert found.sum_fits(by(found, "reduce_sum")) is known, value
    found = program(f"{ends('a', (1, 2))}%r = neg(%a) -> {T}")
    assert not found.sum_fits(by(found, "neg"))


def test_what_replaces_a_value_has_its_range() -> None:
    found = program(f"{ends('a', (2, 5))}%n = neg(%a) -> {T}\n%r = stop_gradient(%x) -> {T}", f"%x: {T}")
    neg, r = by(found, "neg").result, by(found, "stop_gradient").result
    found.find().pop(r, None)
    found.carry(neg, r)
    assert found.of(r) == (-5, -2)
    found.carry(by(found, "constant").result, r)  # it has one
    assert found.of(r) == (-5, -2)
