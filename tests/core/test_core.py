"""The core by itself, on a toy dialect: types, spans, declarations, the verifier, symbols, evaluation, cloning."""

from __future__ import annotations

import gc
import math
from typing import Any

import numpy as np
import pytest

from ptir_tools import read
from ptir_tools.core import places
from ptir_tools.core.builder import Builder, single_function
from ptir_tools.core.declare import OPS, op
from ptir_tools.core.diagnostics import Diagnostics, Rejected, Severity
from ptir_tools.core.dialect import Dialect, Program, clone
from ptir_tools.core.dtypes import F32, F64, I1
from ptir_tools.core.evaluate import Context, run_block
from ptir_tools.core.ir import PURE, Element, Function, Literal, Op, Region, Value, create, exact
from ptir_tools.core.limits import LimitExceeded, Limits
from ptir_tools.core.places import word
from ptir_tools.core.source import Source, Span, pack, pack_json
from ptir_tools.core.spelling import attribute_meant, dtype_meant, edits, near_names, nearest
from ptir_tools.core.symbols import bind, specialize, symbols
from ptir_tools.core.types import POISON, UNKNOWN, UNTYPED, TensorType, leaves, sym, tensor, tuple_of
from ptir_tools.core.verify import check_sizes, check_types, symbolic_clash, verify
from ptir_tools.core.violations import Violation, require
from ptir_tools.dialects.synonyms import op_meant

Many = tuple[Any, ...]


def same(x: TensorType, y: TensorType) -> TensorType:
    require(x is y, "ToyMismatch", f"{x} and {y} differ", at="%y")
    return x


@op("toy.add", infer=same, traits=PURE)
def add(x: Any, y: Any) -> Any:
    """Sum."""
    return x + y


def joined(*xs: TensorType, axis: int = 0) -> TensorType:
    return xs[0].with_shape((UNKNOWN, *xs[0].shape[1:]))


@op("toy.join", infer=joined, traits=PURE)
def join(*xs: Any, axis: int = 0) -> Any:
    """Concatenation."""
    return np.concatenate(xs, axis)


def picked(a: Many, b: Many, *, scale: float = 1.0) -> tuple[TensorType, ...]:
    return (a[0], b[0])


@op("toy.pick", infer=picked)
def pick(a: Many, b: Many, *, scale: float = 1.0) -> Any:
    """The first of each group, scaled."""
    return a[0] * scale, b[0] * scale


def repeated(x: TensorType, *, body: Region, times: int) -> TensorType:
    return x


@op("toy.repeat", infer=repeated)
def repeat(x: Any, *, body: Region, times: int) -> Any:
    """`body` applied `times` times."""
    for _ in range(times):
        (x,) = body(x)
    return x


TOY = Dialect("toy", constant="")
V = tensor(F32, (2,))


def program() -> tuple[Program, Builder]:
    return single_function(TOY)


def codes(p: Program) -> list[str]:
    d = Diagnostics(p.source)
    verify(p, d)
    return [x.code for x in d]


def test_equal_types_are_the_same_object() -> None:
    assert tensor(F32, [2, sym("N")]) is tensor(F32, (2, sym("N")))
    assert tensor(F32, (2,)) is not tensor(F64, (2,))
    assert leaves(tuple_of([V, tuple_of([V])])) == (V, V)


def test_types_print_as_ptir_spells_them() -> None:
    assert str(tensor(F32, (sym("N"), 4))) == "tensor<f32, ?Nx4>"
    assert str(tensor(I1)) == "tensor<i1>"
    assert str(tensor(F32, (sym("max"),))) == 'tensor<f32, ?"max">'
    assert str(tuple_of([V, V])) == "(tensor<f32, 2>, tensor<f32, 2>)"


def test_attribute_keys_go_by_kind_and_bits() -> None:
    assert exact((1, 1.0, True)) != exact((True, 1.0, 1))
    assert exact((0.0,)) != exact((-0.0,))
    assert exact((math.nan,)) == exact((math.nan,))


def test_positions_count_lines_and_code_points_from_one() -> None:
    s = Source("f", "ab\r\ncé\nd")
    assert s.position(s.text.index("é")) == (2, 2)
    assert s.line_text(1) == "ab" and s.line_text(3) == "d"
    assert s.span(pack(0, 2)) == Span(0, 2) and s.span(0) is None


def test_json_locations_are_resolved_on_demand() -> None:
    s = Source("f", "[1]", json_span=lambda path: Span(1, 2) if path == ("a", 3) else None)
    c = s.add_container(("a",))
    assert s.span(pack_json(c, 3)) == Span(1, 2) and s.span(pack_json(c, 4)) is None


def test_a_needle_is_a_whole_word_and_the_rightmost() -> None:
    s = Source("f", "%x = add %x, %xy, %x.y")
    assert word(s, Span(0, 22), "%x") == Span(9, 11)
    assert word(s, Span(0, 22), "y") == Span(21, 22) and word(s, Span(0, 22), "ad") is None


def test_the_nearest_name_is_the_only_one_of_the_fewest_edits() -> None:
    assert [edits("abc", word, 2) for word in ("abc", "acb", "ab", "abcd", "xbc", "cab", "xyz")] == [0, 1, 1, 1, 1, 2, 3]
    assert nearest("sx", ["xs", "y"]) == "xs" and nearest("ad", ["and", "add"]) == "add"
    assert nearest("t9", ["t0", "t1"]) is None and near_names("t9", ["t0", "t1"]) == ["t0", "t1"]
    assert nearest("q", ["x"]) is None and nearest("RELU", ["Relu", "Relu6"]) == "Relu"
    assert nearest("axis", ["axes", "keepdims"]) == "axes" and nearest("something", ["other"]) is None


def test_long_names_are_near_by_a_few_edits_or_not_compared() -> None:
    name = "layer_norm_of_the_" * 5
    assert nearest(name, [name[:-1]]) == name[:-1] and nearest(name, [name[:-8]]) == name[:-8]
    assert nearest(name, [name[:-9]]) is None
    assert nearest("9" * 5000, ["9" * 4999 + "8"]) is None  # comparing two of these took 4 s


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("lhs_contract", "batch_lhs batch_rhs contract_lhs contract_rhs", "contract_lhs"),  # other order
        ("rhs_contracting_dims", "batch_lhs batch_rhs contract_lhs contract_rhs", "contract_rhs"),
        ("lhsContracting", "contract_lhs contract_rhs", "contract_lhs"),
        ("dims", "axes keepdims", "axes"), ("axes", "perm", "perm"), ("permutation", "perm", "perm"),
        ("shape", "result_shape", "result_shape"), ("new_shape", "result_shape dtype", "result_shape"),
        ("dtype", "accum_dtype out_dtype", "out_dtype"), ("acc_dtype", "dtype", "dtype"), ("eps", "epsilon axis", "epsilon"),
        ("window_strides", "window strides", None), ("shape", "a_shape b_shape", None), ("colour", "axis", None),
    ],
)  # fmt: skip
def test_an_attribute_of_the_same_words_is_meant(name: str, known: str, meant: str | None) -> None:
    assert attribute_meant(name, known.split()) == meant


def test_what_other_systems_call_ops_and_dtypes_is_meant() -> None:
    ptir = ["add", "sub", "maximum", "minimum", "mul", "compare_eq", "broadcast_to", "reduce_sum", "layer_norm", "argmax"]
    calls = ["max", "Multiply", "eq", "expand", "sum", "LayerNorm", "arg_max"]
    assert [op_meant(name, ptir) for name in calls] == ["maximum", *ptir[4:]]
    assert op_meant("MULTIPLY", ["ADD", "MUL"]) == "MUL" and op_meant("pto.tile.maximum", ["pto.tile.max"]) == "pto.tile.max"
    assert op_meant("warp", ptir) is None
    ours = {"fp32": F32, "bool": I1, "f64": F64}
    assert [dtype_meant(t, ours) for t in ("float32", "f32", "Float", "i1", "double", "float64")] == [
        "fp32", "fp32", "fp32", "bool", "f64", "f64"]  # fmt: skip
    assert dtype_meant("fp31", ours) == "fp32" and dtype_meant("int8", ours) is None


def test_diagnostics_sort_by_place_and_reject() -> None:
    d = Diagnostics(Source("f", "abc\ndef"))
    d.warning("W", "late", Span(4, 5))
    d.error("E", "early", Span(1, 2))
    assert [x.code for x in d.sorted()] == ["E", "W"] and d.errors == 1
    assert d.sorted()[1].where == ("f", 2, 1) and d.sorted()[1].severity is Severity.WARNING
    with pytest.raises(Rejected, match="f:1:2: early"):
        d.raise_if_errors()


def test_a_declaration_is_read_from_the_signature() -> None:
    d = OPS["toy.pick"]
    assert [(g.name, g.kind) for g in d.groups] == [("a", "many"), ("b", "many")]
    assert [a.name for a in d.attrs] == ["scale", "segments"] and d.float_attrs
    assert OPS["toy.join"].groups[0].kind == "many" and OPS["toy.repeat"].regions == ("body",)


def test_groups_and_several_results() -> None:
    x, y = Value(V, "x"), Value(V, "y")
    made = create(OPS["toy.pick"], [[x, x], [y]], {"scale": 2.0})
    assert made.attr("segments") == (2, 1) and [r.type for r in made.results] == [V, V]
    f = Function("f", [x, y], [made], list(made.results))
    got = run_block(f, [np.float32([1, 2]), np.float32([3, 4])], Context())
    assert [g.tolist() for g in got] == [[2, 4], [6, 8]]


def test_unknown_missing_and_counted() -> None:
    x = Value(V, "x")
    for groups, attrs, message in (
        ([x], {}, "add takes 2 operands, got 1"),
        ([x, x], {"k": 1}, "add has no attribute `k`"),
    ):
        with pytest.raises(Violation, match=message):
            create(OPS["toy.add"], groups, attrs)
    with pytest.raises(Violation, match="needs the attribute `times`"):
        create(OPS["toy.repeat"], [x], {}, regions=[Region()])


def test_the_verifier_fills_open_types_and_refuses_wrong_ones() -> None:
    p, b = program()
    x = b.param(V, "x")
    s = b.op("add", x, x, types=[UNTYPED])
    b.results(x)
    b.block.results[0] = s
    assert codes(p) == [] and s.type is V
    s.type = tensor(F64, (2,))
    assert codes(p) == ["ResultTypeMismatch"]


def test_an_error_silences_what_depends_on_it() -> None:
    p, b = program()
    x, y = b.param(V, "x"), b.param(tensor(F32, (3,)), "y")
    bad = b.op("add", x, y, types=[V])
    after = b.op("add", bad, y, types=[V])
    b.results(after)
    assert codes(p) == ["ToyMismatch"] and after.type is POISON


def test_uses_before_definition_and_elements_of_non_tuples() -> None:
    p, b = program()
    x = b.param(V, "x")
    late = Value(V, "late")
    b.op("add", x, late, types=[V])
    b.op("add", Element(x, 0), x, types=[V])
    assert codes(p) == ["UndefinedValue", "TupleIndexOutOfRange"]


def test_results_are_checked_against_the_declaration() -> None:
    p, b = program()
    x = b.param(V, "x")
    b.block.results, b.block.result_types = [x], [V, V]
    assert codes(p) == ["ResultTypeMismatch"]
    b.block.result_types = [tensor(F32, (sym("N"),))]
    assert codes(p) == ["DynamicDimensionMismatch"]


def test_unknown_extents_fit_any() -> None:
    assert tensor(F32, (sym("N"),)).accepts(tensor(F32, (UNKNOWN,)))
    assert not tensor(F32, (sym("N"),)).accepts(tensor(F32, (sym("M"),)))


def test_symbols_are_bound_and_inferred() -> None:
    p, b = program()
    x = b.param(tensor(F32, (sym("N"), sym("M"))), "x")
    y = b.op("join", x, x, types=[tensor(F32, (sym("T"), sym("M")))])
    b.results(y)
    assert symbols(p) == ["N", "M", "T"]
    bind(p, {"M": 5})
    assert x.type is tensor(F32, (sym("N"), 5))
    with pytest.raises(Violation, match="no value for T"):
        specialize(clone(p), {"N": 2})
    specialize(p, {"N": 2, "T": 4})
    assert y.type is tensor(F32, (4, 5))


def test_a_symbol_with_two_values_is_refused() -> None:
    p, b = program()
    x = b.param(tensor(F32, (sym("N"),)), "x")
    b.op("add", x, x, types=[tensor(F32, (sym("M"),))])
    with pytest.raises(Violation, match="axis 0 has extent 3, expected \\?M is 4"):
        specialize(p, {"N": 3, "M": 4})


def test_regions_run_as_callables() -> None:
    a = Value(V, "a")
    double = create(OPS["toy.add"], [a, a])
    body = Region("r", [a], [double], [double.result], [V])
    p, b = program()
    x = b.param(V, "x")
    y = b.op("repeat", x, regions=[body], times=3)
    b.results(y)
    p.regions.append(body)
    assert codes(p) == []
    assert run_block(p.main, [np.float32([1, 2])], Context())[0].tolist() == [8, 16]


def test_a_failing_body_is_named() -> None:
    @op("toy.fail", infer=lambda x: x)
    def fail(x: Any) -> Any:
        raise Violation("Toy", "no")

    p, b = program()
    x = b.param(V, "x")
    b.op("fail", x)
    context = Context()
    with pytest.raises(Violation):
        run_block(p.main, [np.float32([1, 2])], context)
    assert context.failed is p.main.body[0]
    del OPS["toy.fail"]


def test_a_declaration_with_evaluated_annotations_is_refused() -> None:
    def fail(x: Any) -> Any:
        return x

    fail.__annotations__ = {"x": Any}
    with pytest.raises(TypeError, match="from __future__ import annotations"):
        op("toy.fail", infer=lambda x: x)(fail)


def test_a_clone_shares_nothing_but_literals() -> None:
    p, b = program()
    x = b.param(V, "x")
    literal = Literal(V, bytes(8))
    y = b.op("add", x, literal)
    b.results(y)
    q = clone(p)
    assert q.main.body[0].operands[0] is q.main.params[0] is not x
    assert q.main.body[0].operands[1] is literal and q.main.results[0] is q.main.body[0].result
    assert q.main.body[0].result.op is q.main.body[0]


def test_missing_payloads_equal_only_themselves() -> None:
    a, b = Literal(V, None), Literal(V, None)
    assert a.same(a) and not a.same(b)
    assert Literal(V, bytes(8)).same(Literal(V, bytes(8)))


def test_the_builder_keeps_names_apart() -> None:
    _, b = program()
    x = b.param(V, "x")
    assert [b.op("add", x, x, name="x").name, b.op("add", x, x, name="x").name, b.op("add", x, x).name] == ["x_1", "x_2", "v0"]


def test_ops_are_walked_with_their_nested_regions() -> None:
    inner = Op(OPS["toy.add"])
    outer = Op(OPS["toy.repeat"], regions=(Region(body=[inner], isolated=False),))
    assert list(Region(body=[outer]).ops()) == [outer, inner]


def test_a_diagnostic_does_not_show_its_whole_source() -> None:
    found = Diagnostics(Source("big.toy", "x" * 1_000_000))
    found.error("ToyMismatch", "no", Span(0, 1))
    assert len(repr(found.items[0])) < 300 and "big.toy" in repr(found.items[0])


def test_small_programs_that_are_dropped_are_collected():
    lines = "".join(f"%v{k + 1} = neg(%v{k}) -> tensor<f32, 4>\n" for k in range(200))
    source = f"func @main(%v0: tensor<f32, 4>) -> tensor<f32, 4> {{\n{lines}return %v200\n}}\n"
    kept = read(source)
    gc.collect()
    base = len(gc.get_objects())
    again = read(source)
    gc.collect()
    one = len(gc.get_objects()) - base
    for _ in range(100):
        read(source)
    assert len(gc.get_objects()) - base < 50 * one
    assert len(kept.main.body) == len(again.main.body)


def test_types_clash_by_symbols_alone_where_each_difference_has_one() -> None:
    n, m = sym("N"), sym("M")
    assert symbolic_clash(tensor(F32, (n, 2)), tensor(F32, (4, 2))) and symbolic_clash(tensor(F32, (4, 2)), tensor(F32, (n, 2)))
    assert symbolic_clash(tensor(F32, (n, 2)), tensor(F32, (m, 2))) and not symbolic_clash(tensor(F32, (n,)), tensor(F32, (n,)))
    assert not symbolic_clash(tensor(F32, (n, 2)), tensor(F32, (4, 3))) and not symbolic_clash(
        tensor(F32, (2,)), tensor(F32, (3,))
    )
    assert not symbolic_clash(tensor(F32, (n,)), tensor(F64, (4,)))
    one, two = (tuple_of([tensor(F32, (x,)), tensor(F32, (2,))]) for x in (n, 4))
    assert symbolic_clash(one, two) and not symbolic_clash(one, tuple_of([tensor(F32, (4,))]))


def test_a_program_without_values_is_within_every_limit() -> None:
    program, b = single_function(TOY)
    check_sizes(program, Limits(ops=0, operands=0, name_length=0))
    x = b.param(tensor(F32, (2,)), "long")
    for limits, flag in (
        (Limits(name_length=3), "--max-name-length"),
        (Limits(operands=1), "--max-operands"),
        (Limits(ops=0), "--max-ops"),
    ):
        if flag != "--max-name-length" and not program.main.body:
            b.op("add", x, x)
        with pytest.raises(LimitExceeded) as caught:
            check_sizes(program, limits)
        assert caught.value.flag == flag
    check_sizes(program, Limits(ops=1, operands=2, name_length=4))


def test_what_goes_wrong_with_numbers_is_told_at_its_op() -> None:
    text = """func @f(%x: tensor<f32, ?N>) -> tensor<f32, 3> {
  %a = neg(%x) -> tensor<f32, ?N>
  %b = reshape(%a) new_shape[3] -> tensor<f32, 3>
  return %b
}
"""
    program = read(text)
    with pytest.raises(Violation) as caught:
        specialize(program, {"N": 4})
    assert caught.value.loc == program.main.body[1].loc != 0


def test_each_operand_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked, written = [], places._written
    monkeypatch.setattr(places, "_written", lambda x: looked.append(x) or written(x))
    names = [f"%x{i}" for i in range(300)]
    header = ", ".join(f"{n}: tensor<f32, 2>" for n in names)
    text = f"func @f({header}) -> tensor<f32, 2> {{\n  %y = add({', '.join(names)}) -> tensor<f32, 2>\n  return %y\n}}\n"
    with pytest.raises(Rejected) as caught:
        read(text)
    (error,) = caught.value.diagnostics
    assert error.code == "OperandCountMismatch" and error.span is not None
    assert text[error.span.start : error.span.end] == ", ".join(names[2:])
    assert len(looked) == len(names)


PLACES_OF_TYPES = {
    "a parameter": "func @f(%x: {t}) -> tensor<f32> {{\n  return dense<1.0> : tensor<f32>\n}}\n",
    "a result of an op": "func @f(%x: tensor<f32, 3>) -> tensor<f32> {{\n  %y = broadcast_to(%x) result_shape[{s}] -> {t}\n"
    "  return dense<1.0> : tensor<f32>\n}}\n",
    "an operand": "func @f(%x: tensor<f32, 3>) -> tensor<f32> {{\n"
    "  %y = reduce_sum(dense<1.0> : {t}) axes[0, 1] -> tensor<f32>\n  return %y\n}}\n",
    "a result": "func @f(%x: tensor<f32, 3>) -> {t} {{\n  return dense<1.0> : {t}\n}}\n",
}


@pytest.mark.parametrize("where", PLACES_OF_TYPES)
def test_types_are_held_to_the_limits_wherever_they_are(where: str) -> None:
    text = PLACES_OF_TYPES[where].format(t="tensor<f32, 5x3>", s="5, 3")
    program = read(text)
    check_types(program, Limits(rank=2, elements=15))
    for limits, option in ((Limits(rank=1), "--max-rank"), (Limits(elements=14), "--max-elements")):
        with pytest.raises(LimitExceeded) as caught:
            check_types(program, limits)
        assert caught.value.flag == option
