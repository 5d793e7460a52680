"""gpt.rs's dump: what its notation loses, what is refused, what the writer has to add."""

import re

import pytest

from ptir_tools import grammars
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.core.ir import Literal
from ptir_tools.core.types import sym
from ptir_tools.core.verify import verify
from ptir_tools.dialects import load_format
from tests.ptir.texts import DUMPS, clean, errors, read, write


def dump(*body: str, params: tuple[str, ...] = ("%0 : tensor<F32 x 2>",), results: tuple[str, ...] = ()) -> str:
    def section(title: str, lines: tuple[str, ...]) -> str:
        return f"    {title}:\n" + "".join(f"      {line}\n" for line in lines) if lines else ""

    function = section("params", params) + section("body", body) + section("results", results)
    return f"program @f (spec_version = ptir.v0.4) {{\n  func @f {{\n{function}  }}\n}}\n"


def notes(text: str, form: str) -> list[tuple[str, str]]:
    """What writing the text's program in `form` says."""
    diagnostics = Diagnostics()
    writer = load_format(form).write
    assert writer is not None
    "".join(writer(clean(text), diagnostics, Options()))
    return [(d.code, d.message) for d in diagnostics]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("%1 = ElementwiseUnary(Neg)(%7) -> tensor<F32 x 2>", (6, 34, "UndefinedValue", "%7 is not defined here")),
        ("%1 = ElementwiseUnary(Negg)(%0) -> tensor<F32 x 2>",
         (6, 29, "UnknownOp", "ElementwiseUnary has no kind `Negg` (it has: Neg, Abs, Exp, Log, Tanh, Erf, Rsqrt, Reciprocal)")),
        ("%1 = Foo(%0) -> tensor<F32 x 2>", (6, 12, "UnknownOp", "there is no operation kind `Foo`")),
        ("%1 = Gather(GatherSpec { axes: 1 })(%0, %0) -> tensor<F32 x 2>",
         (6, 7, "MissingAttribute", "Gather has no field `axis`")),
        ("%1 = Transpose(TransposeSpec { perm: [-1] })(%0) -> tensor<F32 x 2>",
         (6, 7, "InvalidAttributeValue", "`perm` is an integer, not negative")),
        ("%1 = Select(%0 -> tensor<F32 x 2>", (6, 22, "SyntaxError", "`)` is missing before `->`")),
        ("%1 = Select(%0) -> tensor<F33 x 2>", (6, 33, "DTypeNotSupported", "there is no dtype `F33`")),
        ("%1 = Reduce(ReduceSpec { kind: Sum, axes: [0], axes: [] })(%0) -> tensor<F32 x []>",
         (6, 7, "DuplicateAttribute", "`axes` is given twice")),
        ('%1 = CustomCall(CustomCallSpec { target: "n.o.v1", attrs: {"f": I64(1), "f": I64(2)} })(%0) -> tensor<F32 x 2>',
         (6, 7, "DuplicateAttribute", "`f` is given twice")),
        ('%1 = CustomCall(CustomCallSpec { target: "\\u{ffffff}", attrs: {} })(%0) -> tensor<F32 x 2>',
         (6, 7, "SyntaxError", r"\u{ffffff} is not a character")),
        ('%1 = CustomCall(CustomCallSpec { target: "n.o.v1", attrs: {"f": F64(1e999)} })(%0) -> tensor<F32 x 2>',
         (6, 75, "InvalidAttributeValue", "1e999 is beyond f64")),
        ("%1 = StopGradient(%0[1]) -> tensor<F32 x 2>", (6, 25, "TupleIndexOutOfRange", "%0 is tensor<f32, 2>, not a tuple")),
    ],
)  # fmt: skip
def test_refused(line: str, expected: tuple[int, int, str, str]) -> None:
    after = "%9 = ElementwiseUnary(Exp)(%1) -> tensor<F32 x 2>"  # silent: its operand is in error
    _, diagnostics = read(dump(line, after), "ptir-dump")
    assert errors(diagnostics) == [expected]


def test_the_payload_of_an_inline_literal_is_not_there() -> None:
    program = clean(dump("%1 = ElementwiseBinary(Add)(%0, literal(dtype=F32, shape=2)) -> tensor<F32 x 2>"), "ptir-dump")
    literal = program.main.body[0].operands[1]
    assert isinstance(literal, Literal)
    assert literal.data is None
    text = write(program)
    assert "add(%0, dense<?> : tensor<f32, 2>)" in text
    assert verify(program, read("")[1])
    assert [code for code, _ in notes(text, "ptir-json")] == ["MissingPayload"]
    assert notes(text, "ptir-dump") == []


def test_comments_are_blanks() -> None:
    text = dump("%1 = ElementwiseUnary(Neg)(%0) -> tensor<F32 x 2>", results=("%1 : tensor<F32 x 2>",))
    commented = "// RUN\n" + text.replace("    body:", "    /* a\n%9 = Foo */ body: // b").replace("  }", "  } // c")
    assert write(clean(commented, "ptir-dump"), "ptir-dump") == text


@pytest.mark.parametrize("blank", ["\x1f", "\x0b", "\u2003"])
def test_other_separators_are_no_blanks_in_a_list_of_integers(blank: str) -> None:
    spec = "TensorSpec { dtype: F32, shape: Shape { dims: [Static(1)] } }"
    line = f"%1 = Constant(TensorLiteral {{ spec: {spec}, bytes: [0, 0,{blank}128, 63] }}) -> tensor<F32 x 1>"
    assert [code for _, _, code, _ in errors(read(dump(line), "ptir-dump")[1])] == ["SyntaxError"]


def test_where_a_symbol_ends() -> None:
    program, diagnostics = read(
        dump(
            "%1 = ElementwiseUnary(Neg)(%0) -> tensor<F32 x ?axx2>",
            '%2 = BroadcastTo(BroadcastToSpec { result_shape: Shape { dims: [Dynamic(DimSymbol("ax2"))] } })(%0)'
            " -> tensor<F32 x ?ax2>",
            "%3 = ElementwiseUnary(Neg)(%0) -> tensor<F32 x ?Bx2x?C>",
            params=("%0 : tensor<F32 x 1>",),
        ),
        "ptir-dump",
    )
    shapes = [op.results[0].type.shape for op in program.main.body]
    assert shapes == [(sym("ax"), 2), (sym("ax2"),), (sym("B"), 2, sym("C"))]
    assert [(d.code, d.where[1]) for d in diagnostics] == [("AmbiguousSymbol", 6)]


def test_a_symbol_that_a_payload_spells_is_meant_everywhere() -> None:
    spelled = 'BroadcastTo(BroadcastToSpec { result_shape: Shape { dims: [Dynamic(DimSymbol("axx2"))] } })'
    text = dump(
        f"%1 = {spelled}(%0) -> tensor<F32 x ?axx2>",
        "%2 = ElementwiseUnary(Neg)(%1) -> tensor<F32 x ?axx2>",
        params=("%0 : tensor<F32 x 1>", "%9 : tensor<F32 x ?axx2>"),
        results=("%1 : tensor<F32 x ?axx2>", "%9 : tensor<F32 x ?axx2>", "%2 : tensor<F32 x ?axx2>"),
    )
    program, diagnostics = read(text, "ptir-dump")
    assert verify(program, diagnostics), list(diagnostics)
    assert list(diagnostics) == []
    assert {t.shape for t in program.main.result_types} == {(sym("axx2"),)}
    assert write(program, "ptir-dump") == text


def test_a_reshape_spells_its_symbols_too_and_a_tuple_is_settled() -> None:
    spelled = 'Reshape(ReshapeSpec { new_shape: [Infer, Explicit(Dynamic(DimSymbol("axx2")))] })'
    ranked = "tuple<tensor<F32 x 1x?axx2>, tensor<Si32 x 1x?axx2>>"
    text = dump(
        f"%1 = {spelled}(%0) -> tensor<F32 x 1x?axx2>",
        f"%2 = TopK(TopKSpec {{ k: 1, axis: 0, largest: true, indices_dtype: Si32 }})(%1) -> {ranked}",
        params=("%0 : tensor<F32 x ?axx2>",),
        results=("%1 : tensor<F32 x 1x?axx2>", f"%2 : {ranked}"),
    )
    program, diagnostics = read(text, "ptir-dump")
    assert verify(program, diagnostics), list(diagnostics)
    assert list(diagnostics) == []
    assert write(program, "ptir-dump") == text


WHOLE = """program @f (spec_version = ptir.v0.4) {
  func @f {
    params:
      %0 : tensor<I1 x []>
      %1 : tensor<F32 x 3>
    body:
      %2 = Cond(CondSpec { true_region: RegionId(0), false_region: RegionId(0) })(%0, %1) -> tensor<F32 x 3>
      %3 = ElementwiseUnary(Neg)(%2) -> tensor<F32 x 3>
    results:
      %3 : tensor<F32 x 3>
  }
  region ^r0 {
    params:
      %arg0 : tensor<F32 x 3>
    body:
      %1 = ElementwiseUnary(Exp)(%0) -> tensor<F32 x 3>
    results:
      %res0 : tensor<F32 x 3>
  }
}
"""


@pytest.mark.parametrize("wrong", ["", "@"])
@pytest.mark.parametrize("token", sorted(set(re.findall(r"%?\w+|->|\S", WHOLE)) - set("0123()[]"), key=str))
def test_a_token_that_is_wrong_is_told_once(token: str, wrong: str) -> None:
    for m in re.finditer(rf"(?<![\w%]){re.escape(token)}(?!\w)", WHOLE):
        program, diagnostics = read(WHOLE[: m.start()] + wrong + WHOLE[m.end() :], "ptir-dump")
        assert program is not None
        verify(program, diagnostics)
        assert len(errors(diagnostics)) <= 1, (m.start(), errors(diagnostics))


def test_a_line_that_is_broken_hides_no_other_error() -> None:
    """Its value is in error, so what uses it is silent; an op that does not use it is checked as ever."""
    lines = [f"      %{k} = ElementwiseUnary(Exp)(%{k - 1}) -> tensor<F32 x 3>" for k in (1, 2)]
    assert lines[0] in WHOLE
    broken = lines[0].replace("Unary(", "Unary(?")
    for more, wanted in (("", 1), (lines[1], 1), (lines[1].replace("%1)", "%7)"), 2), (lines[1].replace("%1)", "%0)"), 1)):
        program, diagnostics = read(WHOLE.replace(lines[0], f"{broken}\n{more}" if more else broken), "ptir-dump")
        assert program is not None
        verify(program, diagnostics)
        assert len(errors(diagnostics)) == wanted, (more, errors(diagnostics))


@pytest.mark.parametrize("n", range(1, WHOLE.count("\n")))
def test_a_dump_that_ends_too_early_is_told_once(n: int) -> None:
    program, diagnostics = read("".join(WHOLE.splitlines(True)[:n]), "ptir-dump")
    assert program is not None
    verify(program, diagnostics)
    assert len(errors(diagnostics)) == 1, errors(diagnostics)


@pytest.mark.parametrize("header", ["region ^r0 @ {", "region ^r0"])
def test_a_header_that_is_broken_begins_a_block(header: str) -> None:
    """What follows belongs to it, even where the block before is not closed."""
    text = WHOLE.replace("  }\n  region ^r0 {", f"  {header}").replace("Exp", "Expp").replace("Neg", "Negg")
    _, diagnostics = read(text, "ptir-dump")
    assert sorted(code for _, _, code, _ in errors(diagnostics)) == ["SyntaxError", "UnknownOp", "UnknownOp"]


def test_a_region_with_more_results_than_instructions_is_told_once() -> None:
    more = WHOLE.replace("      %res0 : tensor<F32 x 3>\n", "      %res0 : tensor<F32 x 3>\n" * 2)
    program, diagnostics = read(more, "ptir-dump")
    assert program is not None and verify(program, diagnostics)
    assert [code for _, _, code, _ in errors(diagnostics)] == ["RegionSignatureMismatch"]


HINT = """      %1 = ElementwiseUnary(Neg)(%0) -> tensor<F32 x 2>
      %2 = ElementwiseUnary(Exp)(%1) -> tensor<F32 x 2>
    hints:
      fused_hint id=0 kind=ElementwiseDag policy=Optional {
        inputs: [%0]
        exports: [%2]
        attrs:
          zeta = I64(1)
          alpha = Bool(true)
        body:
          %1 = ElementwiseUnary(Neg)(%0) -> tensor<F32 x 2>
          %2 = ElementwiseUnary(Exp)(%1) -> tensor<F32 x 2>
      }
"""


def test_attributes_of_a_hint_are_a_map() -> None:
    """Sorted by key, no key twice, as those of a custom call."""
    text = dump("", results=("%2 : tensor<F32 x 2>",)).replace("      \n", HINT)
    assert "attrs[{alpha = true, zeta = 1}]" in write(clean(text, "ptir-dump"))
    _, diagnostics = read(text.replace("alpha", "zeta"), "ptir-dump")
    assert errors(diagnostics) == [(14, 11, "DuplicateAttribute", "`zeta` is given twice")]


def test_results_that_are_no_values_are_forwarded() -> None:
    text = """\
program @f (spec_version = ptir.v0.4) {
  func @f(%p: tensor<i1>, %x: tensor<f32, 4>) -> (tensor<f32, 2>, tensor<f32>, tensor<f32, 4>) {
    %t = top_k(%x) k[2] -> (tensor<f32, 2>, tensor<si32, 2>)
    %z = cond(%p, %x) true_region[^a] false_region[^b] -> tensor<f32, 4>
    return %t[0], dense<1.0> : tensor<f32>, %z
  }
  region ^a(%v: tensor<f32, 4>) -> tensor<f32, 4> {
    return %v
  }
  region ^b(%v: tensor<f32, 4>) -> tensor<f32, 4> {
    %e = exp(%v) -> tensor<f32, 4>
    return %e
  }
}
"""
    assert verify(*read(text))
    printed = write(clean(text), "ptir-dump")
    assert "%4 = StopGradient(%2[0]) -> tensor<F32 x 2>" in printed
    assert "%5 = StopGradient(literal(dtype=F32, shape=[])) -> tensor<F32 x []>" in printed
    assert "%1 = StopGradient(%0) -> tensor<F32 x 4>" in printed
    assert "CondSpec { true_region: RegionId(0), false_region: RegionId(1) }" in printed
    assert [code for code, _ in notes(text, "ptir-dump")] == ["ResultForwarded", "ResultForwarded"]
    again = clean(printed, "ptir-dump")
    assert verify(again, read("")[1])
    assert write(again, "ptir-dump") == printed


def test_value_ids_are_the_digits_of_names_and_else_the_smallest_free() -> None:
    lines = ("%7 = neg(%x)", "%a = exp(%7)", "%0 = neg(%a)", "%007 = exp(%0)", "%b = neg(%007)")
    statements = "".join(f"  {line} -> tensor<f32>\n" for line in lines)
    text = f"func @f(%x: tensor<f32>) -> tensor<f32> {{\n{statements}  return %b\n}}\n"
    program = clean(write(clean(text), "ptir-dump"), "ptir-dump")
    assert [p.name for p in program.main.params] == ["1"]
    assert [op.results[0].name for op in program.main.body] == ["7", "2", "0", "3", "4"]


def test_axes_are_not_negative_where_gpt_rs_stores_them_unsigned() -> None:
    text = """\
func @f(%x: tensor<f32, 2x3>, %s: tensor<si8, 2x3>) -> tensor<f32, 3x2> {
  %a = reduce_sum(%x) axes[-1] -> tensor<f32, 2>
  %b = argmax(%x) axis[-1] -> tensor<si32, 2>
  %c = dot_general(%x, %x) batch_lhs[-2] batch_rhs[-2] contract_lhs[-1] contract_rhs[-1] -> tensor<f32, 2>
  %d = iota() axis[-1] -> tensor<si32, 2x3>
  %e = dequantize(%s) axis[-1] -> tensor<f32, 2x3>
  %y = transpose(%x) perm[-1, 0] -> tensor<f32, 3x2>
  return %y
}
"""
    printed = write(clean(text), "ptir-dump")
    for piece in (
        "axes: [1]", "axis: -1, keepdims", "batch_lhs: [0], batch_rhs: [0], contract_lhs: [1], contract_rhs: [1]",
        "dtype: Si32, axis: 1", "axis: Some(1)", "perm: [1, 0]",
    ):  # fmt: skip
        assert piece in printed


def test_composites_are_decomposed_with_a_note() -> None:
    text = """\
func @f(%x: tensor<f32, 4>, %lo: tensor<f32, 4>, %hi: tensor<f32, 4>) -> tensor<f32, 4> {
  %y = clamp(%x, %lo, %hi) -> tensor<f32, 4>
  return %y
}
"""
    printed = write(clean(text), "ptir-dump")
    assert "Clamp" not in printed
    assert "ElementwiseBinary(Maximum)" in printed
    assert [code for code, _ in notes(text, "ptir-dump")] == ["Decomposed"]


def test_a_stream_that_is_not_the_ordinal_is_noted() -> None:
    text = "func @f() -> tensor<f32, 2> {\n  %y = rng_uniform() stream[S] -> tensor<f32, 2>\n  return %y\n}\n"
    assert notes(text.replace("S", "0"), "ptir-dump") == []
    assert [code for code, _ in notes(text.replace("S", "3"), "ptir-dump")] == ["LostStream"]


def test_strings_floats_and_scalars_as_rust_prints_them() -> None:
    text = r"""
func @f(%x: tensor<f32, 2>, %c: tensor<cf32, 2>) -> tensor<f32, 2> {
  %a = custom_call(%x) target["a.b.v1"]
    attrs[{"k y" = "q\"\n\u{7f}é'", mark = "e\u{301}", f = [0.0001, 1e-5, 1e15, 1e16, -0.0, nan, inf]}] -> tensor<f32, 2>
  %b = pad(%c) low[0] high[1] pad_value[(1.0, -2.0)] -> tensor<cf32, 3>
  %y = pad(%x) low[0] high[0] pad_value[unsigned(3)] -> tensor<f32, 2>
  return %y
}
"""
    printed = write(clean(text), "ptir-dump")
    assert "F64Array([0.0001, 1e-5, 1000000000000000.0, 1e16, -0.0, NaN, inf])" in printed
    assert r""""k y": String("q\"\n\u{7f}é'"), "mark": String("e\u{301}")""" in printed
    assert "pad_value: Complex { re: 1.0, im: -2.0 }" in printed
    assert "pad_value: Unsigned(3)" in printed
    assert write(clean(printed, "ptir-dump"), "ptir-dump") == printed


@pytest.mark.parametrize("path", DUMPS, ids=lambda p: p.name)
def test_the_grammar_alone_reads_the_same_program(path, monkeypatch) -> None:
    text = path.read_text()
    fast, said = read(text, "ptir-dump")
    monkeypatch.setattr(grammars, "lines", lambda name: re.compile(r"(?!)"))
    slow, also_said = read(text, "ptir-dump")
    assert errors(said) == errors(also_said)
    assert write(slow) == write(fast)


@pytest.mark.parametrize(
    "spelled",
    ["LayerNorm(LayerNormSpec { epsilon: 1e-5, feature_axis: -1 })", "LayerNorm { epsilon: 1e-5, feature_axis: -1 }"],
)
def test_layer_norm_and_clamp_are_read(spelled: str) -> None:
    """The contract has them, as a struct and as a unit; gpt.rs does not."""
    square, row = "tensor<F32 x 2x4>", "tensor<F32 x 4>"
    text = (
        "program @f (spec_version = ptir.v0.4) {\n  func @f {\n    params:\n"
        f"      %0 : {square}\n      %1 : {row}\n    body:\n      %2 = {spelled}(%0, %1, %1) -> {square}\n"
        f"      %3 = Clamp(%2, %0, %0) -> {square}\n    results:\n      %3 : {square}\n  }}\n}}\n"
    )
    program = clean(text, "ptir-dump")
    assert [op.defn.short for op in program.main.body] == ["layer_norm", "clamp"]
    assert program.main.body[0].attr("epsilon") == 1e-5 and program.main.body[0].attr("feature_axis") == -1


@pytest.mark.parametrize("header", ["program @f {", "program @f () {", "program @f (spec_version = ) {"])
def test_a_dump_says_its_version(header: str) -> None:
    text = f"{header}\n  func @f {{\n    params:\n    results:\n    body:\n  }}\n}}\n"
    assert [(line, code) for line, _, code, _ in errors(read(text, "ptir-dump")[1])] == [(1, "SyntaxError")]
