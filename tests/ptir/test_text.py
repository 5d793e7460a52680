"""Text PTIR: what is read, what is refused and how that is told, what is printed."""

import json
import re
import subprocess
import sys

import pytest
from hypothesis import given, settings

import ptir_tools as ptir
from ptir_tools import grammars
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.core.types import TensorType, sym
from ptir_tools.core.verify import verify
from ptir_tools.dialects.ptir.text import spelling
from tests.ptir.texts import DATA, FUNCS, by_grammar, clean, errors, mutated, read, write

EXAMPLE = """\
program @main (spec_version = ptir.v0.4) {
  func @main(%x: tensor<f32, ?Nx4>, %p: tensor<i1>) -> (tensor<f32, ?Nx4>, tensor<f32, ?Nx2>) {
    %c = constant() value[dense<[1.0, -inf, 0.0025, nan]>] -> tensor<f32, 4>
    %b = broadcast_to(%c) result_shape[?N, 4] -> tensor<f32, ?Nx4>
    %y = add(%x, %b) -> tensor<f32, ?Nx4>
    %k = broadcast_to(dense<2.0> : tensor<f32>) result_shape[?N, 4] -> tensor<f32, ?Nx4>
    %s = mul(%y, %k) -> tensor<f32, ?Nx4>
    %t = top_k(%s) k[2] -> (tensor<f32, ?Nx2>, tensor<si32, ?Nx2>)
    %z = cond(%p, %s) true_region[^r0] false_region[^r1] -> tensor<f32, ?Nx4>
    return %z, %t[0]
    hint 7 DotEpilogue Preferred inputs[%y, %k] exports[%s] attrs[{a = 1, e = [] : f64, on = true, s = "x\\n"}] {
      %s = mul(%y, %k) -> tensor<f32, ?Nx4>
    }
  }
  region ^r0(%a: tensor<f32, ?Nx4>) -> tensor<f32, ?Nx4> {
    %e = exp(%a) -> tensor<f32, ?Nx4>
    return %e
  }
  region ^r1(%a: tensor<f32, ?Nx4>) -> tensor<f32, ?Nx4> {
    return %a
  }
}
"""


def body(*lines: str, params: str = "%x: tensor<f32, 2x3>", result: str = "tensor<f32, 2x3>", returned: str = "%x") -> str:
    statements = "".join(f"  {line}\n" for line in lines)
    return f"func @f({params}) -> {result} {{\n{statements}  return {returned}\n}}\n"


def printed(line: str, **header: str) -> str:
    """A statement as it is printed after reading."""
    return write(clean(body(line, **header))).splitlines()[1].strip()


def test_the_example_of_the_contract_is_read_verified_and_printed_as_it_stands() -> None:
    program, diagnostics = read(EXAMPLE)
    assert verify(program, diagnostics)
    assert errors(diagnostics) == []
    assert write(program) == EXAMPLE
    hint = program.main.annotations[0]
    assert hint.body[0].results[0] is program.main.body[4].results[0]
    assert hint.attrs == (("a", ("I64", 1)), ("e", ("F64Array", ())), ("on", ("Bool", True)), ("s", ("String", "x\n")))
    assert program.main.body[6].regions == tuple(program.regions)


@pytest.mark.parametrize(
    ("line", "canonical"),
    [
        ("y = add x, x -> tensor<f32, 2x3>".replace(" x", " %x"), "%y = add(%x, %x) -> tensor<f32, 2x3>"),
        ("%y = add(x, x) -> Tensor<F32,  2 x 3 >", "%y = add(%x, %x) -> tensor<f32, 2x3>"),
        ("%y = reduce_sum axes[1] keepdims[false] %x -> tensor<f32, 2>", "%y = reduce_sum(%x) axes[1] -> tensor<f32, 2>"),
        ("%y = reduce_sum(%x) keepdims[true] axes[1] -> tensor<f32, 2x1>",
         "%y = reduce_sum(%x) axes[1] keepdims[true] -> tensor<f32, 2x1>"),
        ("%y = reduce_sum(%x) axes[{1}] -> tensor<f32, 2>", "%y = reduce_sum(%x) axes[1] -> tensor<f32, 2>"),
        ("%y = reduce_sum(%x) axes[] accum_dtype[] -> tensor<f32, 2x3>", "%y = reduce_sum(%x) axes[] -> tensor<f32, 2x3>"),
        ("%y = broadcast_to(%x) shape[2, 3] -> tensor<f32, 2x3>", "%y = broadcast_to(%x) result_shape[2, 3] -> tensor<f32, 2x3>"),
        ("%y = dot_general(%x, %x) batch[0] contract_lhs[1] contract_rhs[1] -> tensor<f32, 2>",
         "%y = dot_general(%x, %x) batch_lhs[0] batch_rhs[0] contract_lhs[1] contract_rhs[1] -> tensor<f32, 2>"),
        ("%y = dot_general(%x, %x) batch[1] batch_lhs[0] batch_rhs[0] contract_lhs[1] contract_rhs[1] -> tensor<f32, 2>",
         "%y = dot_general(%x, %x) batch_lhs[0] batch_rhs[0] contract_lhs[1] contract_rhs[1] -> tensor<f32, 2>"),
        ("%y = reshape(%x)\n    new_shape[3, // three\n      -1]\n    -> tensor<f32, 3x2>",
         "%y = reshape(%x) new_shape[3, -1] -> tensor<f32, 3x2>"),
        ("%y = cast %x -> tensor<fp8e4m3, 2x3>", "%y = cast(%x) -> tensor<fp8_e4m3, 2x3>"),
        ("%y = iota() axis[1] -> tensor<si32, 2x3>", "%y = iota() axis[1] -> tensor<si32, 2x3>"),
        ("%y = iota axis[-1] -> tensor<si32, 2x3>", "%y = iota() axis[-1] -> tensor<si32, 2x3>"),
        ("%y = pad(%x) low[0, 1] high[1, 0] interior[0, 0] pad_value[0] -> tensor<f32, 3x4>",
         "%y = pad(%x) low[0, 1] high[1, 0] -> tensor<f32, 3x4>"),
        ("%y = pad(%x) low[0, 1] high[1, 0] pad_value[signed(0)] -> tensor<f32, 3x4>",
         "%y = pad(%x) low[0, 1] high[1, 0] pad_value[signed(0)] -> tensor<f32, 3x4>"),
        ("%y = pad(%x) low[0, 1] high[1, 0] pad_value[-0.0] -> tensor<f32, 3x4>",
         "%y = pad(%x) low[0, 1] high[1, 0] pad_value[-0.0] -> tensor<f32, 3x4>"),
        ("%y = pad(%x) low[0, 1] high[1, 0] pad_value[-inf] -> tensor<f32, 3x4>",
         "%y = pad(%x) low[0, 1] high[1, 0] pad_value[-inf] -> tensor<f32, 3x4>"),
        ("%y = stop_gradient(%x) -> tuple<tensor<f32>, tuple<>>", "%y = stop_gradient(%x) -> (tensor<f32>, ())"),
        ("%y = rng_uniform() stream[3] -> tensor<f32, 2x3>", "%y = rng_uniform() stream[3] -> tensor<f32, 2x3>"),
        ("%y = extract_patches(%x) window[1] strides[1] padding[[0, 0]] -> tensor<f32>",
         "%y = extract_patches(%x) window[1] -> tensor<f32>"),
    ],
)  # fmt: skip
def test_spellings(line: str, canonical: str) -> None:
    assert printed(line) == canonical
    assert printed(canonical) == canonical


@pytest.mark.parametrize(
    "header",
    [
        "func f(x: tensor<f32, 2>) -> tensor<f32, 2> {",
        "func @f(%x: tensor<f32, 2>) -> (tensor<f32, 2>) {",
        "func\n@f(x : tensor<f32,2>)->\n tensor<f32,2>{",
    ],
)
def test_headers(header: str) -> None:
    expected = "func @f(%x: tensor<f32, 2>) -> tensor<f32, 2> {\n  return %x\n}\n"
    assert write(clean(f"{header} return x; }}")) == expected
    assert write(clean(f"/* a */ {header} // b\n/* c\nd */ return /* e */ %x; ; }}")) == expected


def test_result_lists_and_tuples() -> None:
    pair = "(tensor<f32>, tensor<f32>)"
    text = f"func @f(%t: {pair}) -> ({pair}) {{\n  return %t\n}}\n"
    program = clean(text)
    assert len(program.main.result_types) == 1
    assert write(program) == text
    nothing = "func @f() -> () {\n  return\n}\n"
    assert write(clean(nothing)) == nothing


def test_symbols_are_quoted_where_they_would_not_lex_alone() -> None:
    program = clean('func @f(%x: tensor<f32, ?Nx4x?"max"x?"a b">) -> tensor<f32, ?Nx4x?"max"x?"a b"> { return %x }')
    t = program.main.params[0].type
    assert isinstance(t, TensorType)
    assert t.shape == (sym("N"), 4, sym("max"), sym("a b"))
    assert str(t) == 'tensor<f32, ?Nx4x?"max"x?"a b">'
    assert clean(write(program)).main.params[0].type is t


def test_several_functions_keep_the_program_and_a_name_that_needs_quotes() -> None:
    functions = "".join(f"  func @{name}() -> () {{\n    return\n  }}\n" for name in ('"a b"', "g"))
    text = f'program @"a b" (spec_version = ptir.v0.4) {{\n{functions}}}\n'
    program = clean(text)
    assert program.entry == "a b"
    assert write(program) == text


# ---- what is refused


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("function @f(%x: tensor<f32>) -> tensor<f32> {\n  return %x\n}", (1, 1, "SyntaxError", "a function begins with `func`")),
        (body("%y = neg %x[1] -> tensor<f32>"),
         (2, 12, "SyntaxError", "an element of a tuple is an operand in parentheses only")),
        (body("%x = neg %x -> tensor<f32, 2x3>"), (2, 3, "RedefinedValue", "%x is defined twice")),
        (body("%y = reduce_sum(%x) axes[0] keepdim[true] -> tensor<f32, 3>"),
         (2, 31, "UnknownAttribute",
          "reduce_sum has no attribute `keepdim` (it has: axes, keepdims, accum_dtype, out_dtype)")),
        (body("%y = reduce_sum(%x) axes[0] axes[1] -> tensor<f32, 3>"),
         (2, 31, "DuplicateAttribute", "`axes` is given twice")),
        (body("%y = reduce_sum(%x) -> tensor<f32, 3>"), (2, 8, "MissingAttribute", "reduce_sum needs the attribute `axes`")),
        (body("%y = negate(%x) -> tensor<f32, 3>"), (2, 8, "UnknownOp", "there is no operation `negate`")),
        (body("%y = mul %x, 0.5 -> tensor<f32, 2x3>"), (2, 16, "UndefinedValue", "`0.5` is a number, not a value")),
        (body("%y = add(%x, %z) -> tensor<f32, 2x3>"), (2, 16, "UndefinedValue", "%z is not defined here")),
        (body("%y = neg(%x) -> tensor<f32, -2>"), (2, 31, "NegativeDimension", "`-2` is a negative extent")),
        (body("%y = neg(%x) -> tensor<i32, 2>"), (2, 26, "DTypeNotSupported", "there is no dtype `i32`")),
        (body("%y = neg(%x) -> tensor<2x3xf32>"), (2, 19, "SyntaxError", "`tensor<2x3xf32>` is spelled as MLIR does")),
        (body("%y = neg(%x) -> tensor<f32, 2x3>;"),
         (2, 35, "SyntaxError", "statements need no semicolon")),
        (body("%y = reduce_sum(%x) axes[1 -> tensor<f32>"), (2, 30, "SyntaxError", "`]` is missing before `->`")),
        (body("%y = cast(%x) dtype[f32] -> tensor<f32, 2x3>"),
         (2, 17, "UnknownAttribute", "`dtype` of cast is not written: it is that of the result type")),
        (body("%y = constant() value[1.0] -> tensor<f32>"),
         (2, 25, "InvalidAttributeValue", "`value` takes a literal: dense<…>")),
        (body("%y = constant() value[dense<[1.0, x]>] -> tensor<f32, 2>"), (2, 37, "InvalidLiteral", "`x` is not a number")),
        (body("%y = scatter_reduce(%x, %x, %x) axis[0] reduce[mean] -> tensor<f32>"),
         (2, 50, "InvalidAttributeValue", "`reduce` is one of add, max, min, replace")),
        ("func @f(%x: tensor<f32>) -> tensor<f32> {\n}", (2, 1, "SyntaxError", "@f does not end with `return`")),
        ("func @f(%x: tensor<f32>) -> () {\n  return %x\n}", (2, 3, "ResultTypeMismatch", "results returned: 1, declared: 0")),
        ("func @f() -> () {\n  return\n  return\n}", (3, 3, "SyntaxError", "a second `return`")),
        ("func @f(%x: tensor<f32>) -> () {\n  return\n  %y = neg(%x) -> tensor<f32>\n}",
         (3, 3, "SyntaxError", "a statement after `return`")),
        ("func @f() -> () {\n  return\n} garbage here", (3, 3, "SyntaxError", "there is text after the last `}`")),
        ("func @f() -> () {\n  return\n", (3, 1, "SyntaxError", "`}` is missing at the end")),
        ("func @f() -> () { return }\nfunc @g() -> () { return }", (2, 1, "SyntaxError", "a file holds one bare func")),
        ("program @f (spec_version = ptir.v0.3) {\n  func @f() -> () { return }\n}",
         (1, 28, "SpecVersionMismatch", "spec_version is ptir.v0.3, this is a reader of ptir.v0.4")),
        ("program @g (spec_version = ptir.v0.4) {\n  func @f() -> () { return }\n}",
         (1, 9, "UnknownFunction", "the entry function @g is not in the program")),
        ("program @f (spec_version = ptir.v0.4) {\n  func @f(%p: tensor<i1>) -> tensor<f32> {\n"
         "    %y = cond(%p) true_region[^r0] false_region[^r0] -> tensor<f32>\n    return %y\n  }\n}",
         (3, 49, "UnknownRegion", "there is no region ^r0")),
    ],
)  # fmt: skip
def test_refused(text: str, expected: tuple[int, int, str, str]) -> None:
    assert errors(read(text)[1]) == [expected]


@pytest.mark.parametrize("last", ["return ^y", "return %y,", "return %y %x", "return %y-", "retur %y", "%y"])
def test_a_return_in_error_is_told_once(last: str) -> None:
    program, diagnostics = read(f"func @f(%y: tensor<f32>, %x: tensor<f32>) -> tensor<f32> {{\n  {last}\n}}\n")
    assert program is not None and verify(program, diagnostics)
    assert [(line, code) for line, _, code, _ in errors(diagnostics)] == [(2, "SyntaxError")]


WHOLE = """program @main (spec_version = ptir.v0.4) {
  func @main(%p: tensor<i1>, %x: tensor<f32, 4>) -> (tensor<f32, 4>, tensor<f32, 2>) {
    %y = exp(%x) -> tensor<f32, 4>
    %t = top_k(%y) k[2] -> (tensor<f32, 2>, tensor<si32, 2>)
    %z = cond(%p, %y) true_region[^r] false_region[^r] -> tensor<f32, 4>
    return %z, %t[0]
  }
  region ^r(%a: tensor<f32, 4>) -> tensor<f32, 4> {
    return %a
  }
}
"""


@pytest.mark.parametrize("wrong", ["", "@", "%zz"])
@pytest.mark.parametrize("token", sorted(set(re.findall(r"%?\w+|->|\S", WHOLE)) - set("()<[%24")), ids=lambda t: t)
def test_a_token_that_is_wrong_is_told_once(token: str, wrong: str) -> None:
    """What a broken header, statement, return or brace would have said is known not to be known."""
    for m in re.finditer(rf"(?<![\w%]){re.escape(token)}(?!\w)", WHOLE):
        program, diagnostics = read(WHOLE[: m.start()] + wrong + WHOLE[m.end() :])
        assert program is not None
        verify(program, diagnostics)
        assert len(errors(diagnostics)) <= 1, (m.start(), errors(diagnostics))


@pytest.mark.parametrize("n", range(1, WHOLE.count("\n")))
def test_a_line_that_is_missing_and_a_text_that_ends_too_early_are_told_once(n: int) -> None:
    lines = WHOLE.splitlines(True)
    for text in (lines[:n], lines[: n - 1] + lines[n:]):
        program, diagnostics = read("".join(text))
        assert program is not None
        verify(program, diagnostics)
        assert len(errors(diagnostics)) == 1, ("".join(text), errors(diagnostics))


def test_statements_after_the_return_are_told_once() -> None:
    text = "func @f(%x: tensor<f32>) -> tensor<f32> {\n  return %x\n" + "  %y = neg(%x) -> tensor<f32>\n" * 3 + "}\n"
    assert [code for _, _, code, _ in errors(read(text)[1])] == ["SyntaxError"]


def test_every_independent_error_of_a_file_in_one_run() -> None:
    text = body(
        "%a = neg(%x -> tensor<f32, 2x3>",
        "%b = exp(%a) -> tensor<f32, 2x3>",  # silent: %a is in error
        "%c = negg(%x) -> tensor<f32, 2x3>",
        "%d = add(%b, %q) -> tensor<f32, 2x3>",
        "%e = add(%d, %q) -> tensor<f32, 2x3>",  # silent: %q was reported
        "%f = reduce_sum(%x) axis[0] keepdim[true] -> tensor<f32, 3>",
        "%g = neg(%x) -> tensor<f32, 2y3>",
    )
    program, diagnostics = read(text)
    verify(program, diagnostics)
    assert [(line, code) for line, _, code, _ in errors(diagnostics)] == [
        (2, "SyntaxError"),
        (4, "UnknownOp"),
        (5, "UndefinedValue"),
        (7, "UnknownAttribute"),
        (7, "UnknownAttribute"),
        (8, "SyntaxError"),
    ]


def test_an_error_in_a_header_leaves_the_rest_readable() -> None:
    text = body("%y = neg(%x) -> tensor<f32, 2>", "%z = bad(%y) -> tensor<f32>", params="%x: tensor<f32, 2>, ", returned="%z")
    assert [(line, code) for line, _, code, _ in errors(read(text)[1])] == [(1, "SyntaxError"), (3, "UnknownOp")]


@pytest.mark.parametrize("case", json.loads((DATA / "func_edge_cases.json").read_text()), ids=lambda c: c["name"])
def test_what_the_parser_of_gpt_rs_takes(case: dict[str, str]) -> None:
    """What it takes we take, with the same dump, but for its silent quirks; what it refuses and we do not is ours to take."""
    quirks = {"trailing_garbage", "shadow", "arity", "bcast_attr_mismatch", "dup_attr", "tuple_bare_index"}
    ours = {
        "comment_line", "comment_with_eq", "returned_name", "reduce_min", "tuple_param", "maximum", "multi_line", "one_line_two",
    }  # fmt: skip
    program, diagnostics = read(case["source"])
    good = not diagnostics.errors and verify(program, diagnostics)
    assert good == (("dump" in case and case["name"] not in quirks) or case["name"] in ours)
    if good and "dump" in case:
        assert write(program, "ptir-dump") == case["dump"]


def test_placeholders() -> None:
    snippet = (DATA / "func" / "f13_snippet_softmax.ptir.in").read_text()
    values = {"dtype": "f32", "shape": "2x3", "axis": "1", "reduce_shape": "2x1", "shape_list": "2, 3"}
    program = clean(snippet, placeholders=values)
    assert str(program.main.params[0].type) == "tensor<f32, 2x3>"
    _, diagnostics = read(snippet, placeholders={"dtype": "f32", "shapes": "2x3"})
    found = errors(diagnostics)
    assert {code for *_, code, _ in found} == {"UnfilledPlaceholder"}
    assert "did you mean `{{shapes}}`?" in [d.help for d in diagnostics]


def test_limits_are_limits_and_not_crashes() -> None:
    with pytest.raises(LimitExceeded):
        read(f"func @f(%x: {'(' * 5000}{')' * 5000}) -> () {{ return }}")
    with pytest.raises(LimitExceeded):
        read(f"func @f(%x: tensor<f32, {'9' * 5000}>) -> () {{ return }}")
    with pytest.raises(LimitExceeded):
        read(body(f"%y = concat({', '.join(['%x'] * 20_000)}) axis[0] -> tensor<f32, 2x3>"))


# ---- the two readings


def test_the_patterns_of_the_fast_path_are_the_terminals_of_the_grammar() -> None:
    terminals = dict(re.findall(r"^([A-Z]+)(?:\.\d)?: /(.*)/$", grammars.grammar_text("ptir"), re.MULTILINE))
    unescaped = {name: pattern.replace(r"\/", "/") for name, pattern in terminals.items()}
    assert unescaped["VALUE"] == "%" + spelling.NAME
    assert unescaped["WORD"] == spelling.WORD
    assert unescaped["STRING"] == spelling.QUOTED
    assert unescaped["SYMBOL"] == spelling.SYMBOL
    assert unescaped["REGION"] == r"\^" + spelling.WORD
    assert unescaped["TENSOR"] == spelling.TENSOR.replace(r"\"", '"')


SAMPLES = [EXAMPLE, *(p.read_text() for p in FUNCS)]


@pytest.mark.parametrize("text", SAMPLES)
def test_both_readings_of_the_samples_agree(text: str) -> None:
    assert write(by_grammar(text)[0]) == write(clean(text))


@settings(max_examples=150, deadline=None)
@given(mutated(SAMPLES))
def test_both_readings_of_mutated_text_agree(text: str) -> None:
    fast, said = read(text)
    slow, also_said = by_grammar(text)
    assert bool(said.errors) == bool(also_said.errors)
    if not said.errors:
        assert write(fast) == write(slow)
        assert write(clean(write(fast))) == write(fast)


@settings(max_examples=100, deadline=None)
@given(mutated(SAMPLES))
def test_mutated_text_is_verified_or_refused_and_never_raises(text: str) -> None:
    program, diagnostics = read(text)
    if not diagnostics.errors:
        verify(program, Diagnostics(program.source))


def test_a_plain_file_needs_neither_lark_nor_numpy() -> None:
    script = (
        "import sys\n"
        "from ptir_tools.core.diagnostics import Diagnostics\n"
        "from ptir_tools.core.dialect import Options\n"
        "from ptir_tools.core.source import Source\n"
        "from ptir_tools.core.verify import verify\n"
        "from ptir_tools.dialects.ptir.text import format as text\n"
        "source = Source('x', sys.stdin.read())\n"
        "diagnostics = Diagnostics(source)\n"
        "program = text.read(source, diagnostics, Options())\n"
        "assert verify(program, diagnostics)\n"
        "assert ''.join(text.write(program, diagnostics, Options()))\n"
        "heavy = [m for m in ('lark.lark', 'numpy._core', 'ml_dtypes._ml_dtypes_ext') if m in sys.modules]\n"
        "assert not heavy, heavy\n"
    )
    plain = "".join(
        line for line in EXAMPLE.splitlines(True) if "hint" not in line and "      %s" not in line and line != "    }\n"
    )
    for text in (plain, *(p.read_text() for p in FUNCS if "f09" not in p.name)):
        subprocess.run([sys.executable, "-c", script], input=text, text=True, check=True)


def test_reading_is_linear() -> None:
    """A deterministic stand-in for timing: no statement of a plain file goes to the grammar, whatever its length."""
    text = body(*(f"%{i} = add(%{i - 1 if i else 'x'}, %x) -> tensor<f32, 2x3>" for i in range(2000)), returned="%1999")
    program = clean(text)
    assert len(program.main.body) == 2000
    assert write(program) == text
    assert grammars.lines("ptir").match("%a = add(%x, %x) -> tensor<f32, 2x3>")


@pytest.mark.parametrize(
    "names", [("", ""), ("0", ""), ("", "0"), ("a", "a"), ("7", "7"), ("a b", "%"), ("\u0663", ""), ("9" * 11, "")]
)
def test_a_value_without_a_name_of_its_own_gets_a_number_that_is_free(names: tuple[str, str]) -> None:
    """One that has no name, or one that is taken or cannot be written; the others keep theirs."""
    ops = "  %a = neg(%x) -> tensor<f32>\n  %b = exp(%a) -> tensor<f32>\n"
    program = ptir.read(f"func @f(%x: tensor<f32>) -> tensor<f32> {{\n{ops}  return %b\n}}\n")
    for op, name in zip(program.main.body, names, strict=True):
        op.result.name = name
    again = ptir.read(ptir.write(program, "ptir"))
    found = [v.name for v in (*again.main.params, *(op.result for op in again.main.body))]
    kept = [n if n.isalnum() and n not in names[:i] else None for i, n in enumerate(names)]
    assert found[0] == "x" and len({*found}) == 3
    assert all(n == k if k is not None else n.isascii() and n.isdigit() for n, k in zip(found[1:], kept, strict=True))
