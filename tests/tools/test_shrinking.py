"""The edits of `reduce`: one that says that it changed nothing has changed nothing, and what it promises holds of the rest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ptir_tools import api
from ptir_tools.core.arrays import from_literal
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Program, clone
from ptir_tools.core.ir import Function, Literal, Value
from ptir_tools.core.types import TensorType
from ptir_tools.core.verify import verify
from ptir_tools.rewrite.rewriter import Rewriter
from ptir_tools.tools import shrinking
from ptir_tools.tools.shrinking import Edit

ROOT = Path(__file__).parents[2]
PROGRAMS = {
    "regions and tuples": """program @main (spec_version = ptir.v0.4) {
  func @main(%c: tensor<f32, 3>, %x: tensor<f32, 4x3>, %p: tensor<i1>, %u: tensor<f32, 3>) -> (tensor<f32, 3>, tensor<si32, 2>) {
    %w = constant() value[dense<[1.0, 2.0, 3.0]>] -> tensor<f32, 3>
    %r = scan(%c, %x) body_region[^r0] carry_count[1] scan_output_count[1] -> (tensor<f32, 3>, tensor<f32, 4x3>)
    %t = top_k(%r[0]) k[2] axis[0] -> (tensor<f32, 2>, tensor<si32, 2>)
    %q = cond(%p, %w) true_region[^r1] false_region[^r2] -> tensor<f32, 3>
    %y = add(%r[0], %q) -> tensor<f32, 3>
    %z = mul(%y, dense<[1.0, 0.0, 5.0]> : tensor<f32, 3>) -> tensor<f32, 3>
    return %z as out, %t[1]
  }
  region ^r0(%c: tensor<f32, 3>, %e: tensor<f32, 3>) -> (tensor<f32, 3>, tensor<f32, 3>) {
    %s = add(%c, %e) -> tensor<f32, 3>
    %n = neg(%s) -> tensor<f32, 3>
    return %s, %n
  }
  region ^r1(%a: tensor<f32, 3>) -> tensor<f32, 3> {
    %b = exp(%a) -> tensor<f32, 3>
    return %b
  }
  region ^r2(%a: tensor<f32, 3>) -> tensor<f32, 3> {
    return %a
  }
}
""",
    "a chain": """func @f(%0: tensor<f32, 8>, %v: tensor<f32, 8>) -> (tensor<f32, 8>, tensor<f32>) {
  %1 = neg(%0) -> tensor<f32, 8>
  %2 = add(%1, dense<2.0> : tensor<f32, 8>) -> tensor<f32, 8>
  %3 = reduce_sum(%2) axes[0] -> tensor<f32>
  return %2, %3
}
""",
}


def blocks(program: Program) -> list[tuple[int, int]]:
    """The number of each block and of its ops."""
    return [(number, len(block.body)) for number, block in enumerate(program.blocks())]


def text(program: Program) -> str:
    return api.write(program)


def edits(program: Program) -> dict[str, Edit]:
    """Each edit at each place, alone, and of a whole block."""
    replacements = {f.__name__: f for f in (shrinking.by_operand, shrinking.by_constant, shrinking.by_parameter)}
    found: dict[str, Edit] = {"without hints": shrinking.without_hints}
    for number, count in blocks(program):
        spans = [*(range(k, k + 1) for k in range(count)), range(count)]
        for span in spans:
            for name, replace in replacements.items():
                found[f"{number} without {span} {name}"] = shrinking.without_ops(number, replace, span)
            found[f"{number} zeroed {span}"] = shrinking.zeroed(number, span)
            found[f"{number} without parameters {span}"] = shrinking.without_parameters(number, span)
            found[f"{number} without results {span}"] = shrinking.without_results(number, span)
        found |= {f"{number} returning {at}": shrinking.returning(number, at) for at in range(count)}
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_edit_gives_a_program_or_changes_nothing(name: str) -> None:
    whole = api.read(PROGRAMS[name])
    before, changes = text(whole), 0
    for what, edit in edits(whole).items():
        program = clone(whole)
        changed = edit(program)
        found = Diagnostics()
        assert verify(program, found), (what, [d.message for d in found])
        assert (text(program) != before) == changed, what
        changes += changed
    assert text(whole) == before and changes >= 20


def small(body: str, params: str = "%x: tensor<f32, 4>", results: str = "tensor<f32, 4>", returned: str = "%y") -> Program:
    return api.read(f"func @f({params}) -> {results} {{\n{body}\nreturn {returned}\n}}\n")


def replaced(program: Program, replace: Callable[..., object], at: int) -> object:
    main = program.main
    with Rewriter(main, program.dialect) as rw:
        return replace(rw, main.body[at], main.body[at].results[0])


def test_a_parameter_takes_the_place_of_a_tensor_that_is_computed() -> None:
    """It has a name of its own. A tuple, a constant and a value in a region have none."""
    program = api.read(PROGRAMS["regions and tuples"])
    main, shorts = program.main, [op.defn.short for op in program.main.body]
    for at, short in enumerate(shorts):
        known = {p.name for p in main.params} | {v.name for op in main.body for v in op.results}
        got = replaced(program, shrinking.by_parameter, at)
        if short in ("constant", "scan", "top_k"):
            assert got is None
        else:
            assert isinstance(got, Value) and got is main.params[-1] and got.type is main.body[at].result.type
            assert got.name not in known
    loops = api.read(ROOT / "testdata/pto/40_control_flow.pto")
    nested = [(block, op) for block in loops.blocks() for op in block.body if not isinstance(block, Function) and op.results]
    with Rewriter(loops.main, loops.dialect) as rw:
        assert nested and all(shrinking.by_parameter(rw, op, op.results[0]) is None for _, op in nested)
    inner = program.regions[0].body[0]
    with Rewriter(program.regions[0], program.dialect) as rw:
        assert shrinking.by_parameter(rw, inner, inner.result) is None


def test_a_new_parameter_has_a_label() -> None:
    program = small("%y = neg(%x) -> tensor<f32, 4>\n%1 = neg(%y) -> tensor<f32, 4>", returned="%1")
    program.main.attrs["input_names"] = ["the input"]
    got = replaced(program, shrinking.by_parameter, 0)
    assert isinstance(got, Value) and got.name == "2"  # 1 is taken
    assert program.main.attrs["input_names"] == ["the input", "in2"]


def test_an_operand_or_a_parameter_of_the_same_type_takes_the_place() -> None:
    params = "%p: tensor<f32, 2>, %x: tensor<f32, 4>, %q: tensor<f32, 2>"
    program = small("%a = concat(%p, %q) axis[0] -> tensor<f32, 4>\n%b = neg(%a) -> tensor<f32, 4>", params, returned="%b")
    assert replaced(program, shrinking.by_operand, 0) is program.main.params[1]
    assert replaced(program, shrinking.by_operand, 1) is program.main.body[0].result
    alone = small("%y = reduce_sum(%x) axes[0] -> tensor<f32>", results="tensor<f32>")
    assert replaced(alone, shrinking.by_operand, 0) is None


def test_zeros_take_the_place_of_what_is_no_constant() -> None:
    program = small("%c = constant() value[dense<3.0>] -> tensor<f32, 4>\n%y = add(%x, %c) -> tensor<f32, 4>")
    assert replaced(program, shrinking.by_constant, 0) is None
    got = replaced(program, shrinking.by_constant, 1)
    assert isinstance(got, Value) and got.op is not None and not from_literal(got.op.attr("value")).any()


def test_extents_become_others_with_the_constants_of_their_size() -> None:
    """Attributes only where they are asked for. A number that is not an extent stays."""
    body = """%c = constant() value[dense<[5.0, 6.0, 7.0, 8.0]>] -> tensor<f32, 4>
%a = add(%x, %c) -> tensor<f32, 4>
%m = mul(%a, dense<4.0> : tensor<f32, 4>) -> tensor<f32, 4>
%y = broadcast_to(%m) result_shape[4] -> tensor<f32, 4>"""
    whole = small(body)
    assert shrinking.extents(whole) == [4]
    for attributes in (False, True):
        program = clone(whole)
        assert shrinking.resized(4, 2, attributes)(program)
        types = [v.type for v in (*program.main.params, *(op.result for op in program.main.body))]
        assert {t.static_shape for t in types if isinstance(t, TensorType)} == {(2,)}
        assert program.main.result_types == [types[0]]
        constant, _, product, last = program.main.body
        assert from_literal(constant.attr("value")).tolist() == [5.0, 6.0]
        literal = product.operands[1]
        assert isinstance(literal, Literal) and literal.type.static_shape == (2,) and from_literal(literal).tolist() == [4.0, 4.0]
        assert last.attr("result_shape") == ((2,) if attributes else (4,))
        assert not shrinking.resized(3, 2, attributes)(program)


def test_numbers_of_a_text_that_look_like_extents_become_smaller() -> None:
    line = "%12 = op(%3) axes[12, 0] -> tensor<f32, 12x7> // 1.12 v12"
    found = dict(shrinking.smaller_numbers(line))
    assert list(found) == ["12 as 1", "12 as 2", "12 as 6", "7 as 1", "7 as 2", "7 as 3"]
    assert found["12 as 6"] == "%12 = op(%3) axes[6, 0] -> tensor<f32, 6x7> // 1.12 v12"
    assert found["7 as 2"] == "%12 = op(%3) axes[12, 0] -> tensor<f32, 12x2> // 1.12 v12"
    assert [shrinking.below(n) for n in (1, 2, 3, 4, 5, 100)] == [[], [1], [1, 2], [1, 2], [1, 2], [1, 2, 50]]


def test_results_and_inputs_that_are_kept_have_their_names() -> None:
    """Whatever is dropped before them: a result is the number that it was by that name, and so is an input."""
    lines = ["%a = neg(%x) -> tensor<f32, 2>", "%b = exp(%x) -> tensor<f32, 2>", "%c = abs(%x) -> tensor<f32, 2>"]
    head = "func @f(%x: tensor<f32, 2>) -> (tensor<f32, 2>, tensor<f32, 2>, tensor<f32, 2>) {\n  "
    program = api.read(head + "\n  ".join([*lines, "return %a as one, %b as two, %c as three\n}\n"]))
    given = {"x": np.array([1, -2], np.float32)}
    outputs = api.run(program, given)
    nodes = [f'{{"id":"{n}","uop":"INPUT","arg":{{"tensor_id":"in {n}","dtype":"fp32","shape":[2]}}}}' for n in "pqr"]
    graph = api.read(f'{{"uops":[{",".join(nodes)},{{"id":"s","uop":"SUB","src":["p","r"]}}],"outputs":["s"]}}')
    for first, last in ((0, 1), (1, 2), (2, 3), (0, 2), (1, 3)):
        part, smaller = clone(program), clone(graph)
        assert shrinking.without_results(0, range(first, last))(part)
        found = api.run(part, given)
        assert [*found] == [name for k, name in enumerate(outputs) if not first <= k < last]
        assert all(np.array_equal(x, outputs[name]) for name, x in found.items())
        assert shrinking.without_parameters(0, range(first, last))(smaller) is (first <= 1 < last)
        wanted = {"in p": given["x"], "in q": given["x"], "in r": given["x"] * 3}
        left = {name: x for name, x in wanted.items() if name in smaller.main.attrs["input_names"]}
        assert [*left] == [f"in {p.name}" for p in smaller.main.params]
        assert np.array_equal(*api.run(smaller, left).values(), given["x"] * -2)
