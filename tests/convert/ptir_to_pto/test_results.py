"""What has no elements, and what is a tuple, on tiles."""

import numpy as np
import pytest
from ml_dtypes import bfloat16

from ptir_tools import engines
from ptir_tools.convert import translate
from ptir_tools.core.arrays import numpy_dtype
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.dialects.pto.types import MemRefType
from ptir_tools.engines.compare import check
from tests.convert.ptir_to_pto.programs import TARGETS, agree, program, reread


def translated(before, target="a3"):
    after = translate(before, "pto", found := Diagnostics(before.source), Options(target=target))
    assert after is not None, found.items
    return reread(after)


TUPLE = """func @main(%x: tensor<f32, 5x7>) -> (tensor<f32, 5x7>, (tensor<f32, 5x3>, tensor<si32, 5x3>), tensor<f32, 5x7>) {
  %t = top_k(%x) k[3] -> (tensor<f32, 5x3>, tensor<si32, 5x3>)
  %y = neg(%x) -> tensor<f32, 5x7>
  return %y, %t, %x
}"""

CARRIED = """program @main (spec_version = ptir.v0.4) {
  func @main(%x: tensor<f32, 4x3>, %p: tensor<i1>) -> ((tensor<f32, 3>, tensor<f32, 3>), (tensor<f32, 3>, tensor<f32, 3>)) {
    %r = reduce_max(%x) axes[0] -> tensor<f32, 3>
    %s = scan(%r, %r, %x) body_region[^pair] carry_count[2] scan_output_count[0] -> (tensor<f32, 3>, tensor<f32, 3>)
    %t = scan(%s, %x) body_region[^turn] carry_count[1] scan_output_count[0] -> (tensor<f32, 3>, tensor<f32, 3>)
    %u = cond(FLAG, %s, %t) true_region[^one] false_region[^other] -> (tensor<f32, 3>, tensor<f32, 3>)
    return %u, %t
  }
  region ^pair(%a: tensor<f32, 3>, %b: tensor<f32, 3>, %x: tensor<f32, 3>) -> (tensor<f32, 3>, tensor<f32, 3>) {
    %c = add(%b, %x) -> tensor<f32, 3>
    return %c, %a
  }
  region ^turn(%a: (tensor<f32, 3>, tensor<f32, 3>), %x: tensor<f32, 3>) -> ((tensor<f32, 3>, tensor<f32, 3>)) {
    %c = sub(%a[1], %x) -> tensor<f32, 3>
    %w = broadcast_to(%x) result_shape[2, 3] -> tensor<f32, 2x3>
    %s = scan(%c, %a[0], %w) body_region[^pair] carry_count[2] scan_output_count[0] -> (tensor<f32, 3>, tensor<f32, 3>)
    return %s
  }
  region ^one(%a: (tensor<f32, 3>, tensor<f32, 3>), %b: (tensor<f32, 3>, tensor<f32, 3>)) -> ((tensor<f32, 3>, tensor<f32, 3>)) {
    return %a
  }
  region ^other(%a: (tensor<f32, 3>, tensor<f32, 3>), %b: (tensor<f32, 3>, tensor<f32, 3>))
      -> ((tensor<f32, 3>, tensor<f32, 3>)) {
    return %b
  }
}"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("flag", ["%p", "%d"])
def test_tuples(flag, target):
    agree(program(TUPLE), translated(program(TUPLE), target))


EMPTY = """func @main(%x: tensor<f32, 5x7>, %none: tensor<f32, 0x7>, %w: tensor<f32, 7x0>)
    -> (tensor<f32, 5x7>, tensor<f32, 0x7>, tensor<f32, 5x0>, tensor<f32, 5x7>, tensor<f32, 7>, tensor<f32, 0x7>) {
  %y = concat(%none, %x) axis[0] -> tensor<f32, 5x7>
  %n = neg(%none) -> tensor<f32, 0x7>
  %p = dot_general(%x, %w) contract_lhs[1] contract_rhs[0] -> tensor<f32, 5x0>
  %v = transpose(%w) perm[1, 0] -> tensor<f32, 0x7>
  %q = dot_general(%p, %v) contract_lhs[1] contract_rhs[0] -> tensor<f32, 5x7>
  %m = reduce_max(%n) axes[0] -> tensor<f32, 7>
  return %y, %n, %p, %q, %m, %none
}"""

ALL_EMPTY = "func @main(%x: tensor<f32, 3x0>) -> tensor<f32, 0x3> { %y = transpose(%x) perm[1, 0] -> tensor<f32, 0x3> return %y }"

EMPTY_LOOP = """program @main (spec_version = ptir.v0.4) {
  func @main(%x: tensor<f32, 4x0>, %c: tensor<f32, 3>, %n: tensor<f32, 0x3>)
      -> (tensor<f32, 3>, tensor<f32, 4x0>, tensor<f32, 3>, tensor<f32, 0x3>, (tensor<f32, 0x3>, tensor<si32, 0x3>)) {
    %s = scan(%c, %x) body_region[^b] carry_count[1] scan_output_count[1] -> (tensor<f32, 3>, tensor<f32, 4x0>)
    %z = scan(%c, %n) body_region[^row] carry_count[1] scan_output_count[1] -> (tensor<f32, 3>, tensor<f32, 0x3>)
    %k = top_k(%n) k[0] axis[0] -> (tensor<f32, 0x3>, tensor<si32, 0x3>)
    return %s[0], %s[1], %z[0], %z[1], %k
  }
  region ^b(%c: tensor<f32, 3>, %x: tensor<f32, 0>) -> (tensor<f32, 3>, tensor<f32, 0>) {
    %d = add(%c, %c) -> tensor<f32, 3>
    return %d, %x
  }
  region ^row(%c: tensor<f32, 3>, %x: tensor<f32, 3>) -> (tensor<f32, 3>, tensor<f32, 3>) {
    %d = add(%c, %x) -> tensor<f32, 3>
    return %d, %d
  }
}"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("flag", ["%p", "dense<false> : tensor<i1>"])
def test_tuples_that_loops_carry_and_branches_give(flag, target):
    before = program(CARRIED.replace("FLAG", flag))
    agree(before, translated(before, target))


def test_a_branch_by_data_gives_a_tuple():
    data = "%e = compare_lt(%r, %r) -> tensor<i1, 3>\n %d = reduce_or(%e) axes[0] -> tensor<i1>\n %s = scan"
    before = program(CARRIED.replace("FLAG", "%d").replace("%s = scan", data, 1))
    agree(before, translated(before))


UNREAD = """func @main() -> ((tensor<f32, 0>, tensor<si32, 0>)) {
  %r = real(dense<[(2.5, 1.25), (0.0, -2.75)]> : tensor<cf32, 2>) -> tensor<f32, 2>
  %k = top_k(%r) k[0] -> (tensor<f32, 0>, tensor<si32, 0>)
  return %k
}"""


def test_a_constant_that_nothing_reads_is_no_parameter():
    """No memory could hold it either."""
    before, kept = program(UNREAD), {}
    after = translate(before, "pto", Diagnostics(before.source), Options(target="a3", constants=kept))
    assert after is not None
    assert [p.name for p in after.main.params] == ["k_0", "k_1"] and kept == {}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("text", [EMPTY, ALL_EMPTY, EMPTY_LOOP])
def test_what_has_no_elements(text, target):
    agree(program(text), translated(program(text), target))


def test_memory_of_what_has_no_elements():
    """It keeps its place among the parameters, with the one element that a memref has at least."""
    after = translated(program(EMPTY))
    shapes = [p.type.shape for p in after.main.params if isinstance(p.type, MemRefType)]
    assert shapes[:3] == [(5, 7), (1,), (1,)] and shapes[-6:] == [(5, 7), (1,), (1,), (5, 7), (7,), (1,)]


def test_symbols_next_to_an_extent_of_0():
    before = program("func @main(%x: tensor<f32, ?Nx0>, %y: tensor<f32, ?Nx2>) -> (tensor<f32, ?Nx0>, tensor<f32, ?Nx2>)"
                     " { %a = neg(%x) -> tensor<f32, ?Nx0> %b = neg(%y) -> tensor<f32, ?Nx2> return %a, %b }")  # fmt: skip
    assert not check(before, translated(before), runs=1).diverged


def test_windows_of_nothing_but_padding():
    before = program(
        "func @main(%x: tensor<f32, 2x0x3>) -> (tensor<f32, 2x4x3>, tensor<f32, 2x4x3>) {"
        " %y = extract_patches(%x) window[1] strides[1] padding[[2, 2]] pad_value[1.5] -> tensor<f32, 2x4x3>"
        " %z = reduce_window(%x) window_dims[1, 2, 1] strides[1, 1, 1] padding[[0, 0], [2, 3], [0, 0]] base_dilation[1, 1, 1]"
        " window_dilation[1, 1, 1] reduce[max] -> tensor<f32, 2x4x3> return %y, %z }"
    )
    found = check(before, translated(before), runs=1)
    assert not found.diverged and np.all(np.isneginf(list(found.expected.values())[1]))


def test_a_table_that_a_loop_makes_is_complete_before_it_is_read():
    """The second `take` reads rows that a loop over the places of the first one has not made yet."""
    t = "tensor<bf16, 2>"
    text = f"""func @main(%x: {t}, %i: tensor<si32, 2>) -> ({t}, tensor<bf16, 2x2x2>) {{
  %a = take(%x, %i) -> {t}
  %b = take(%a, %i) -> {t}
  %c = reshape(%b) new_shape[1, 2, 1] -> tensor<bf16, 1x2x1>
  %y = broadcast_to(%c) result_shape[2, 2, 2] -> tensor<bf16, 2x2x2>
  return %a, %y
}}"""
    before, x = program(text), np.array([1, 2], bfloat16)
    for target in TARGETS:
        given = {"x": x, "i": np.array([1, 0], np.int32)}
        after = translated(before, target)
        memory = {p.name: np.zeros(p.type.shape, numpy_dtype(p.type.dtype)) for p in after.main.params if p.name not in given}
        found = engines.run(after, given | memory)
        assert found["a"].tolist() == [2, 1] and found["y"].tolist() == 2 * [[[1, 1], [2, 2]]]


@pytest.mark.parametrize("number", [4, -(2**31), 2**40])
@pytest.mark.parametrize("short", ["lt", "eq"])
def test_integers_of_64_bits_are_compared_where_32_say_the_same(short, number):
    """With a number that is not at the ends of 32 bits; with another number, or after an addition in 32 bits, by --lossy."""
    t = "tensor<si64, 4>"
    text = f"""func @main(%x: {t}) -> tensor<i1, 4> {{
  %y = compare_{short}(%x, dense<{number}> : {t}) -> tensor<i1, 4>
  return %y
}}"""
    before = program(text)
    lossy = translate(before, "pto", Diagnostics(before.source), Options(lossy=True))
    assert lossy is not None
    after = translate(before, "pto", found := Diagnostics(before.source), Options())
    if number != 4:
        assert after is None and "no tile op does" in found.items[0].message and "--lossy" in found.items[0].help
        return
    x = np.array([4, 2**40 + 4, -(2**40), 5])
    found = list(engines.run(after, [x, np.zeros(4, np.int8)]).values())[-1]
    assert found.astype(bool).tolist() == (x < 4 if short == "lt" else x == 4).tolist()


def test_places_of_64_bits_are_compared():
    """Counts are within 32 bits."""
    t, m = "tensor<si64, ?Nx4>", "tensor<i1, ?Nx4>"
    text = f"""func @main(%x: tensor<f32, ?Nx4>) -> tensor<f32, ?Nx4> {{
  %i = iota() axis[0] -> {t}
  %j = iota() axis[1] -> {t}
  %m = compare_ge(%i, %j) -> {m}
  %y = select(%m, %x, %x) -> tensor<f32, ?Nx4>
  %n = neg(%y) -> tensor<f32, ?Nx4>
  %z = select(%m, %n, %y) -> tensor<f32, ?Nx4>
  return %z
}}"""
    agree(program(text), translated(program(text)))


@pytest.mark.parametrize("dtype", ["ui32", "ui8", "si32"])
def test_one_number_as_a_row_next_to_a_larger_block(dtype):
    """On its way to a row it is less than a block, in elements with a sign too."""
    t = f"tensor<{dtype}, 2x1x2>"
    before = program(f"func @main(%x: tensor<{dtype}, 1>, %y: {t}) -> (tensor<{dtype}, 1>, {t}) {{"
                     f" %z = add(%y, %y) -> {t} return %x, %z }}")  # fmt: skip
    for target in TARGETS:
        agree(before, translated(before, target))
    constant = program(f"func @main(%x: tensor<{dtype}, 1>) -> (tensor<{dtype}, 1>, {t}) {{ return %x, dense<0> : {t} }}")
    agree(constant, translated(constant))
