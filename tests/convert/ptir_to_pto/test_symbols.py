"""Extents that are symbols, beyond rows and columns: joined, split, put next to each other, ordered, gone over by windows."""

import pytest

from ptir_tools.convert import translate
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.engines.compare import check
from ptir_tools.engines.options import RunOptions
from tests.convert.ptir_to_pto.programs import TARGETS, agree, function, program, reread, single

ROWS = "tensor<f32, ?Mx8>"
WINDOW = "base_dilation[1, 1, 1, 1] window_dilation[1, 1, 1, 1]"
PATCHES = "extract_patches(%x) window[3, 3] strides[1, 1] dilation[1, 1]"
PRODUCT = "dot_general(%p, %w) contract_lhs[3] contract_rhs[0]"
START = (
    "%z = reshape(%i) new_shape[1] -> tensor<si32, 1>",
    "%s = concat(%z, dense<[0]> : tensor<si32, 1>) axis[0] -> tensor<si32, 2>",
)

CASES = {
    "joined": ("%x: tensor<f32, ?Bx?Sx3x8>", "?Dx8", "%y = reshape(%x) new_shape[?D, 8] -> tensor<f32, ?Dx8>"),
    "all joined": (
        "%x: tensor<f32, ?Bx?S>", "?D", "%z = reshape(%x) new_shape[?D] -> tensor<f32, ?D>", "%y = exp(%z) -> tensor<f32, ?D>",
    ),
    "taken apart": (
        "%x: tensor<f32, ?D>, %z: tensor<f32, ?Bx?S>", "?Bx?S", "%t = reshape(%x) new_shape[?B, ?S] -> tensor<f32, ?Bx?S>",
        "%y = add(%t, %z) -> tensor<f32, ?Bx?S>",
    ),
    "a product in small blocks": (
        "%x: tensor<f32, ?Mx?K>, %w: tensor<f32, ?Kx?N>", "?Mx?N",
        "%p = dot_general(%x, %w) contract_lhs[1] contract_rhs[0] -> tensor<f32, ?Mx?N>", "%y = tanh(%p) -> tensor<f32, ?Mx?N>",
    ),
    "rows in halves": ("%x: tensor<f32, ?Nx8>", "?Mx4", "%y = reshape(%x) new_shape[?M, 4] -> tensor<f32, ?Mx4>"),
    "heads": (
        "%x: tensor<f32, ?Bx?Sx24>, %w: tensor<f32, 24x32>", "?Bx4x?Sx8",
        "%f = reshape(%x) new_shape[?D, 24] -> tensor<f32, ?Dx24>",
        "%h = dot_general(%f, %w) contract_lhs[1] contract_rhs[0] -> tensor<f32, ?Dx32>",
        "%r = reshape(%h) new_shape[?B, ?S, 4, 8] -> tensor<f32, ?Bx?Sx4x8>",
        "%y = transpose(%r) perm[0, 2, 1, 3] -> tensor<f32, ?Bx4x?Sx8>",
    ),
    "next to each other": (
        f"%x: {ROWS}, %z: tensor<f32, ?Nx8>", "?Kx8", "%y = concat(%x, %z, %x) axis[0] -> tensor<f32, ?Kx8>",
    ),
    "padded": (f"%x: {ROWS}", "?Kx9", "%y = pad(%x) low[1, 0] high[2, 1] interior[1, 0] pad_value[2.0] -> tensor<f32, ?Kx9>"),
    "repeated": (f"%x: {ROWS}", "?Kx8", "%y = tile(%x) repeats[3, 1] -> tensor<f32, ?Kx8>"),
    "sorted along it": (f"%x: {ROWS}", "?Mx8", f"%y = sort(%x) axis[0] -> {ROWS}"),
    "sorted across it": (f"%x: {ROWS}", "?Mx8", f"%y = sort(%x) axis[1] -> {ROWS}"),
    "remainders": (f"%x: {ROWS}, %z: {ROWS}", "?Mx8", f"%y = rem(%x, %z) -> {ROWS}"),
    "windows of many images": (
        "%x: tensor<f32, ?Mx8x8x4>", "?Mx4x4x4",
        f"%y = reduce_window(%x) reduce[max] window_dims[1, 3, 3, 1] strides[1, 2, 2, 1] "
        f"padding[(0, 0), (1, 1), (1, 1), (0, 0)] {WINDOW} -> tensor<f32, ?Mx4x4x4>",
    ),
    "windows along it": (
        "%x: tensor<f32, 2x?Hx8x4>", "2x?Kx4x4",
        f"%y = reduce_window(%x) reduce[sum] window_dims[1, 2, 2, 1] strides[1, 2, 2, 1] "
        f"padding[(0, 0), (0, 0), (0, 0), (0, 0)] {WINDOW} -> tensor<f32, 2x?Kx4x4>",
    ),
    "convolution of many images": (
        "%x: tensor<f32, ?Nx8x8x4>, %w: tensor<f32, 36x5>", "?Nx8x8x5",
        f"%p = {PATCHES} padding[(1, 1), (1, 1)] pad_value[0.0] -> tensor<f32, ?Nx8x8x36>",
        f"%y = {PRODUCT} -> tensor<f32, ?Nx8x8x5>",
    ),
    "convolution along it": (
        "%x: tensor<f32, 2x?Hx8x4>, %w: tensor<f32, 36x5>", "2x?Kx6x5",
        f"%p = {PATCHES} padding[(0, 0), (0, 0)] pad_value[0.0] -> tensor<f32, 2x?Kx6x36>",
        f"%y = {PRODUCT} -> tensor<f32, 2x?Kx6x5>",
    ),
    "a part from a number on": (
        f"%x: {ROWS}, %i: tensor<si32>", "2x8", *START, "%y = dynamic_slice(%x, %s) sizes[2, 8] -> tensor<f32, 2x8>",
    ),
    "a part from data on": (
        f"%x: {ROWS}, %s: tensor<si32, 2>", "2x8", "%y = dynamic_slice(%x, %s) sizes[2, 8] -> tensor<f32, 2x8>",
    ),
    "a part replaced from a number on": (
        f"%x: {ROWS}, %u: tensor<f32, 2x8>, %i: tensor<si32>", "?Mx8", *START,
        f"%y = dynamic_update_slice(%x, %u, %s) sizes[2, 8] -> {ROWS}",
    ),
    "a part replaced from data on": (
        f"%x: {ROWS}, %u: tensor<f32, 2x8>, %s: tensor<si32, 2>", "?Mx8",
        f"%y = dynamic_update_slice(%x, %u, %s) sizes[2, 8] -> {ROWS}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_a_symbol_wherever_it_may_be(name, target):
    parameters, shape, *lines = CASES[name]
    before = single(parameters, f"tensor<f32, {shape}>", *lines)
    after = translate(before, "pto", found := Diagnostics(before.source), Options(target=target))
    assert after is not None and not found.items, found.items
    agree(before, reread(after))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("sizes", [{"B": 1, "S": 1}, {"B": 3, "S": 1}, {"B": 2, "S": 70}])
def test_rows_that_are_joined_end_within_a_block(sizes, target):
    parameters, shape, *lines = CASES["heads"]
    before = single(parameters, f"tensor<f32, {shape}>", *lines)
    after = translate(before, "pto", Diagnostics(before.source), Options(target=target))
    agree(before, reread(after), bindings={**sizes, "D": sizes["B"] * sizes["S"]})


RESHAPED = {
    "one more axis": ("2x?Nx5", "?Nx10"),
    "of another symbol": ("?Nx6", "?Kx4"),
    "exchanged with a number": ("8x?N", "?Nx8"),
    "exchanged with a symbol": ("?Nx?M", "?Mx?N"),
    "a part of a number": ("8x?Nx3", "2x4x?K"),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", RESHAPED)
def test_a_reshape_through_a_vector(name, target):
    source, made = (f"tensor<f32, {shape}>" for shape in RESHAPED[name])
    extents = RESHAPED[name][1].replace("x", ", ")
    lines = [f"%e = neg(%x) -> {source}", f"%t = reshape(%e) new_shape[{extents}] -> {made}", f"%y = exp(%t) -> {made}"]
    lines.append(f"%s = reduce_sum(%t) axes[0, 1] -> tensor<f32{', ?K' if '4x?K' in made else ''}>")
    before = function(f"%x: {source}", f"{made}, {lines[-1].split('-> ')[1]}", *lines, returns="%y, %s")
    after = translate(before, "pto", found := Diagnostics(before.source), Options(target=target))
    assert after is not None and not found.items, found.items
    after = reread(after)
    for n, m in ((2, 1), (6, 4), (70, 3)):
        agree(before, after, bindings={k: v for k, v in {"N": n, "M": m}.items() if f"?{k}" in source})


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["sum", "max"])
@pytest.mark.parametrize(
    "rows, windows",
    [
        ("?M", "window_dims[1, 3] strides[1, 1] padding[(0, 0), (2, 1)] base_dilation[1, 3] window_dilation[1, 1]"),
        ("?J", "window_dims[2, 3] strides[2, 2] padding[(1, 2), (0, 0)] base_dilation[2, 2] window_dilation[1, 2]"),
        ("?M", "window_dims[1, 150] strides[1, 2] padding[(0, 0), (100, 80)] base_dilation[1, 1] window_dilation[1, 1]"),
        ("?J", "window_dims[2, 131] strides[1, 1] padding[(3, 0), (90, 80)] base_dilation[2, 2] window_dilation[3, 1]"),
    ],
)
def test_windows_along_symbols_that_are_long_or_have_holes(rows, windows, kind, target):
    made = f"tensor<f32, {rows}x?K>"
    before = single("%x: tensor<f32, ?Mx?N>", made, f"%y = reduce_window(%x) reduce[{kind}] {windows} -> {made}")
    after = translate(before, "pto", found := Diagnostics(before.source), Options(target=target))
    assert after is not None and not found.items, found.items
    after = reread(after)
    agree(before, after, bindings={"M": 4, "N": 5})


@pytest.mark.parametrize("target", TARGETS)
def test_the_largest_of_a_symbol(target):
    types = "tensor<f32, ?Mx3>, tensor<si32, ?Mx3>"
    line = f"%y = top_k(%x) k[3] axis[1] -> ({types})"
    before = function(f"%x: {ROWS}", types, line, returns="%y[0], %y[1]")
    after = translate(before, "pto", found := Diagnostics(before.source), Options(target=target))
    assert after is not None, found.items
    agree(before, reread(after))


PADDED = {
    "same": ("2x?N", "2x?N", "sum", "window_dims[1, 3] strides[1, 1] padding[(0, 0), (1, 1)] {} window_dilation[1, 1]"),
    "strides": ("2x?N", "2x?M", "max", "window_dims[1, 3] strides[1, 2] padding[(0, 0), (1, 1)] {} window_dilation[1, 1]"),
    "far": ("2x?N", "2x?M", "min", "window_dims[1, 5] strides[1, 3] padding[(0, 0), (7, 9)] {} window_dilation[1, 2]"),
    "both": ("?Nx?K", "?Nx?K", "max", "window_dims[2, 3] strides[1, 1] padding[(0, 1), (1, 1)] {} window_dilation[1, 1]"),
}
IMAGES = {
    "two symbols": ("1x?Nx?Kx4", "1x?Nx?Kx36", "window[3, 3] strides[1, 1] dilation[1, 1] padding[(1, 1), (1, 1)]"),
    "one": ("?Bx?Nx6x4", "?Bx?Mx6x36", "window[3, 3] strides[2, 1] dilation[2, 1] padding[(3, 1), (1, 1)]"),
}


def of_sizes(before, target, sizes):
    after = translate(before, "pto", found := Diagnostics(before.source), Options(target=target))
    assert after is not None, found.items
    for n in sizes:
        agree(before, reread(after), bindings={"N": n})


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PADDED)
def test_windows_that_leave_a_symbol(name, target):
    """On either side, and on both where the extent is small."""
    x, y, kind, attrs = PADDED[name]
    attrs = attrs.format("base_dilation[1, 1]")
    lines = [f"%e = neg(%x) -> tensor<f32, {x}>", f"%y = reduce_window(%e) reduce[{kind}] {attrs} -> tensor<f32, {y}>"]
    of_sizes(single(f"%x: tensor<f32, {x}>", f"tensor<f32, {y}>", *lines), target, (*[0] * (name == "far"), 1, 2, 70))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", IMAGES)
def test_patches_that_leave_a_symbol(name, target):
    x, y, attrs = IMAGES[name]
    line = f"%y = extract_patches(%x) {attrs} pad_value[2.0] -> tensor<f32, {y}>"
    of_sizes(single(f"%x: tensor<f32, {x}>", f"tensor<f32, {y}>", line), target, (1, 5))


@pytest.mark.parametrize("target", TARGETS)
def test_a_convolution_that_leaves_two_symbols(target):
    y = "tensor<f32, 1x?Nx?Kx5>"
    lines = [
        f"%p = {PATCHES} padding[(1, 1), (1, 1)] pad_value[0.0] -> tensor<f32, 1x?Nx?Kx36>",
        f"%y = {PRODUCT} -> {y}",
    ]
    of_sizes(single("%x: tensor<f32, 1x?Nx?Kx4>, %w: tensor<f32, 36x5>", y, *lines), target, (1, 9))


def test_windows_that_are_long_and_further_apart():
    made = "tensor<f32, ?Mx8>"
    line = "%y = reduce_window(%x) reduce[sum] window_dims[200, 1] strides[300, 1] padding[(0, 0), (0, 0)] base_dilation[1, 1]"
    before = single("%x: tensor<f32, ?Nx8>", made, f"{line} window_dilation[1, 1] -> {made}")
    assert translate(before, "pto", found := Diagnostics(before.source), Options(target="a3")) is None
    assert ["windows of 200 along" in d.message and "300 apart" in d.message for d in found] == [True]


@pytest.mark.parametrize("width", [2, 0])
@pytest.mark.parametrize("made", ["%a, %d", "%a, %a"])
def test_a_loop_to_an_extent_that_no_kernel_has(width, made):
    """It is a parameter all the same; of a loop that does nothing it is none."""
    before = program(f"""program @main (spec_version = ptir.v0.4) {{
  func @main(%c: tensor<f32, 3>, %x: tensor<f32, ?Nx{width}>) -> (tensor<f32, 3>, tensor<f32, 3>) {{
    %s = scan(%c, %c, %x) body_region[^r] carry_count[2] scan_output_count[0] -> (tensor<f32, 3>, tensor<f32, 3>)
    return %s[0], %s[1]
  }}
  region ^r(%a: tensor<f32, 3>, %b: tensor<f32, 3>, %e: tensor<f32, {width}>) -> (tensor<f32, 3>, tensor<f32, 3>) {{
    %d = add(%b, %b) -> tensor<f32, 3>
    return {made}
  }}
}}""")
    after = translate(before, "pto", found := Diagnostics(before.source), Options())
    assert after is not None, found.items
    agree(before, reread(after))


def test_places_behind_the_end_of_a_block_are_no_indices():
    """Of a table of 2N elements every other one; the block of counts goes beyond them."""
    before = program("""func @main(%x: tensor<si32, ?M>, %y: tensor<f32, ?N>) -> tensor<si32, ?N> {
  %i = iota() axis[0] -> tensor<si32, ?N>
  %j = add(%i, %i) -> tensor<si32, ?N>
  %z = take(%x, %j) -> tensor<si32, ?N>
  return %z
}""")
    after = translate(before, "pto", found := Diagnostics(before.source), Options())
    assert after is not None, found.items
    assert not check(before, reread(after), runs=1, options=RunOptions(bindings={"N": 5, "M": 10})).diverged


@pytest.mark.parametrize("target", TARGETS)
def test_extents_of_what_nothing_reads_are_no_parameters(target):
    """The largest none of windows in what has holes: the memory with the holes is left out, and with it its extent."""
    window = "window_dims[1, 2] strides[1, 1] padding[(0, 0), (0, 1)] base_dilation[1, 2] window_dilation[1, 1]"
    lines = [
        f"%w = reduce_window(%x) reduce[max] {window} -> tensor<f32, ?Mx?K>",
        "%t = transpose(%w) perm[1, 0] -> tensor<f32, ?Kx?M>",
        "%k = top_k(%t) k[0] axis[1] -> (tensor<f32, ?Kx0>, tensor<si32, ?Kx0>)",
        "%y = neg(%x) -> tensor<f32, ?Mx?N>",
    ]
    before = function("%x: tensor<f32, ?Mx?N>", "tensor<f32, ?Kx0>, tensor<f32, ?Mx?N>", *lines, returns="%k[0], %y")
    after = translate(before, "pto", found := Diagnostics(before.source), Options(target=target))
    assert after is not None and not found.items, found.items
    assert [p.name for p in after.main.params if str(p.type) == "index"] == ["M", "N"]
    agree(before, reread(after), bindings={"M": 3, "N": 5})


@pytest.mark.parametrize("target", TARGETS)
def test_a_mask_that_is_a_number_next_to_short_floats(target):
    t = "tensor<bf16, 1x3>"
    lines = [
        f"%z = broadcast_to(dense<-0.0> : tensor<bf16>) result_shape[1, 3] -> {t}",
        "%m = broadcast_to(dense<true> : tensor<i1>) result_shape[1, 3] -> tensor<i1, 1x3>",
        f"%y = select(%m, %x, %z) -> {t}",
    ]
    before = single(f"%x: {t}", t, *lines)
    after = translate(before, "pto", found := Diagnostics(before.source), Options(target=target))
    assert after is not None and not found.items, found.items
    agree(before, reread(after))


ONE_NUMBER = {
    "rows by data": ("?Mx4", "%y = take(%b, %i) -> tensor<f32, 2x4>", "2x4"),
    "a part by data": ("?Mx4", "%y = dynamic_slice(%b, %i) sizes[1, 2] -> tensor<f32, 1x2>", "1x2"),
    "a part that is replaced": ("3x4", "%y = dynamic_update_slice(%x, %b, %i) sizes[3, 4] -> tensor<f32, 3x5>", "3x5"),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", ONE_NUMBER)
def test_a_table_that_is_one_number(case, target):
    table, line, made = ONE_NUMBER[case]
    lines = [
        f"%b = broadcast_to(dense<2.5> : tensor<f32>) result_shape[{table.replace('x', ', ')}] -> tensor<f32, {table}>",
        line,
        "%z = neg(%w) -> tensor<f32, ?Mx2>",
    ]
    params = "%i: tensor<si32, 2>, %x: tensor<f32, 3x5>, %w: tensor<f32, ?Mx2>"
    before = function(params, f"tensor<f32, {made}>, tensor<f32, ?Mx2>", *lines, returns="%y, %z")
    after = translate(before, "pto", found := Diagnostics(before.source), Options(target=target))
    assert after is not None and not found.items, found.items
    agree(before, reread(after), bindings={"M": 5})
