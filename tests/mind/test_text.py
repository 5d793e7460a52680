"""Reading both encodings of MIND, the canonical print byte for byte, layout, records, and every code of the catalogue."""

import json
import random
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.core.source import Source
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.mind import DIALECT
from ptir_tools.dialects.mind.text import records
from ptir_tools.dialects.mind.text.format import format_text
from ptir_tools.dialects.mind.text.reader import Reader
from ptir_tools.passes import PassContext, run_pipeline
from tests.mind.programs import SAMPLES, codes, good, random_program, read, run, show

X = "%0 = Input {name=x} : tensor<f32[2, 3]>\n"
AT_RUN_TIME = {"E6001", "E6006"}
EXPECTED = {
    "20_use_before_def": "E4001",
    "22_undefined_output": "E4003",
    "23_dtype_mismatch": "E2004",
    "24_broadcast_fail": "E3001",
    "26_bad_permutation": "E3008",
    "28_axis_out_of_range": "E3004",
    "30_const_count": "E4005",
    "32_slice_zero_step": "E4008",
    "34_gather_float_indices": "E4011",
    "36_input_without_name": "E4004",
    "38_relu_int": "E2005",
    "40_zero_dim": "E3006",
    "42_bad_escape": "E1004",
    "44_conv_strides": "E4010",
    "46_matmul_rank": "E3002",
}


def fmt(text: str) -> str:
    diagnostics = Diagnostics(Source("x", text))
    shown = format_text(diagnostics.source, diagnostics)
    assert shown is not None, [d.message for d in diagnostics]
    return shown


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.name)
def test_samples(path) -> None:
    expected = EXPECTED.get(path.name.removesuffix(".mind.ir"))
    assert codes(path.read_text()) == ([expected] if expected else [])


@pytest.mark.parametrize(
    "entry", [c for c in DIALECT.explain() if c.wrong and c.code != "ValuesRenumbered"], ids=lambda c: c.code
)
def test_every_code_is_provoked_by_its_wrong_program_alone(entry) -> None:
    assert codes(entry.right) == []
    if entry.code.startswith("E5"):
        program, context = good(entry.wrong), PassContext()
        run_pipeline(program, "autodiff", context)
        assert [d.code for d in context.diagnostics] == [entry.code]
        return
    if entry.code not in AT_RUN_TIME:
        assert codes(entry.wrong) == [entry.code]
        return
    program, diagnostics = read(entry.wrong)
    assert not diagnostics.errors
    with pytest.raises(Violation) as raised:
        run(program, [np.ones(p.type.static_shape, p.type.dtype.numpy) for p in program.main.params])
    assert raised.value.code == entry.code


CANONICAL = [
    "%0 = Input {name=x} : tensor<f32[2, 2]>\n%1 = Input {name=y} : tensor<f32[2, 2]>\n"
    "%2 = Add (%0, %1) : tensor<f32[2, 2]>\noutputs: %2\n",
    "%0 = ConstTensor {dtype=f32, shape=(), value=2.5} : tensor<f32[]>\noutputs: %0\n",
    "%0 = ConstTensor {dtype=i32, shape=(2, 2), value=[[1, 2], [3, 4]]} : tensor<i32[2, 2]>\noutputs: %0\n",
    "%0 = ConstTensor {dtype=f64, shape=(2,), value=[1.0, 2.0]} : tensor<f64[2]>\noutputs: %0, %0\n",
    "%0 = ConstTensor {dtype=f32, shape=(5,), value=[0.1, 1e-07, -0.0, inf, nan]} : tensor<f32[5]>\noutputs: %0\n",
    "%0 = ConstF32 {value=1e-45} : tensor<f32[]>\n%1 = ConstF64 {value=0.1} : tensor<f64[]>\n"
    "%2 = ConstI64 {value=-9223372036854775808} : tensor<i64[]>\noutputs: %0, %1, %2\n",
    '%0 = Input {name="a \\"b\\"\\n"} : tensor<i64[]>\n%1 = Input {name="true"} : tensor<i64[]>\noutputs: %0\n',
    "%0 = Input {name=x} : tensor<f32[1, 4, 4, 2]>\n%1 = Input {name=f} : tensor<f32[3, 3, 2, 1]>\n"
    "%2 = Conv2d (%0, %1) {padding=Custom([[1, 1], [0, 2]]), strides=[1, 2]} : tensor<f32[1, 4, 2, 1]>\noutputs: %2\n",
    X + "%1 = Slice (%0) {ends=[2, 3], starts=[2, 0], steps=[1, 2]} : tensor<f32[0, 2]>\n%2 = Neg (%1) : tensor<f32[0, 2]>\n"
    "outputs: %2\n",
]


@pytest.mark.parametrize("text", CANONICAL)
def test_canonical_text_prints_as_itself(text) -> None:
    assert show(good(text)) == text
    assert fmt(text) == text


@given(st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_what_is_printed_reads_back(seed) -> None:
    text = show(random_program(seed))
    again = good(text)
    assert show(again) == text == fmt(text)


@given(st.lists(st.floats(width=32), min_size=1, max_size=8))
@settings(max_examples=50, deadline=None)
def test_floats_round_trip(values) -> None:
    x = np.array(values, np.float32)
    listed = ", ".join(map(repr, values))
    program = good(f"%0 = ConstTensor([{listed}]) : tensor<f32[{len(x)}]>\noutputs: %0\n")
    (before,), (after,) = run(program, []), run(good(show(program)), [])
    assert np.array_equal(before, x, equal_nan=True)
    assert np.array_equal(before, after, equal_nan=True) and np.array_equal(np.signbit(before[x == 0]), np.signbit(after[x == 0]))


SPELLINGS = [
    ("%1 = BinOp(Mul, %0, %0,)", "%1 = Mul (%0, %0)"),
    ("%1 = BinOp (%0, %0) {op=Sub}", "%1 = Sub (%0, %0)"),
    ("%1 = Sum(%0, [1], true)", "%1 = Sum (%0) {axes=[1], keepdims=true}"),
    ("%1 = Sum (%0) {axes: [1], keepdims: False}", "%1 = Sum (%0) {axes=[1], keepdims=false}"),
    ("%1 = Sum (%0) {keepdims=True, axes=(1,)}", "%1 = Sum (%0) {axes=[1], keepdims=true}"),
    ("%1 = Reshape (%0) {shape=[3, 2]}", "%1 = Reshape (%0) {new_shape=[3, 2]}"),
    ("%1 = Transpose (%0) {perm=[1, 0]}", "%1 = Transpose (%0) {permutation=[1, 0]}"),
    ("%1 = ExpandDims (%0) {axis=[2]}", "%1 = ExpandDims (%0) {axes=[2]}"),
    ("%1 = Slice(%0, [0:2, 1:3:2])", "%1 = Slice (%0) {ends=[2, 3], starts=[0, 1], steps=[1, 2]}"),
    ("%1 = Index(%0, [1, 2])", "%1 = Index (%0) {indices=[1, 2]}"),
    ("%1 = ConstTensor([[1, 2],]) : Tensor<f32, [1, 2]>", None),
    ("%1 = ConstTensor {data=[1, 2], dtype=f32, shape=[1, 2]}", None),
    ("%1 = ConstTensor([[1, 2]], f32, [1, 2])", None),
    ("%1 = ConstI64(3)", "%1 = ConstI64 {value=3}"),
    ("%1 = ConstF32(3)", "%1 = ConstF32 {value=3.0}"),
    ("%1=Neg(%0):tensor<f32>[2,3]", "%1 = Neg (%0) : tensor<f32[2, 3]>"),
]


@pytest.mark.parametrize(("given_text", "wanted"), SPELLINGS)
def test_spellings(given_text, wanted) -> None:
    program = good(f"{X}{given_text}\noutputs: %1\n")
    line = show(program).splitlines()[1]
    wanted = wanted or "%1 = ConstTensor {dtype=f32, shape=(1, 2), value=[[1.0, 2.0]]}"
    assert line.startswith(wanted)
    assert fmt(f"{X}{given_text}\noutputs: %1\n").splitlines()[1].startswith(wanted)


def test_conv_positional() -> None:
    inputs = "%0 = Input {name=x} : tensor<f32[1, 4, 4, 2]>\n%1 = Input {name=f} : tensor<f32[3, 3, 2, 1]>\n"
    for padding in ("Valid", "Same", "Custom([[1, 1], [0, 2]])"):
        text = show(good(f"{inputs}%2 = Conv2d(%0, %1, [1, 1], {padding})\noutputs: %2\n"))
        assert f"{{padding={padding}, strides=[1, 1]}}" in text


def test_scalar_types_headers_and_ids() -> None:
    program = good("# MIND IR v1.2\ninputs: x, y $ 'anything'\n%x = Input(\"s\") : tensor<f32>\n%007 = Neg(%x)\noutputs: %7,\n")
    assert show(program) == "%x = Input {name=s} : tensor<f32[]>\n%7 = Neg (%x) : tensor<f32[]>\noutputs: %7\n"


def test_inputs_are_hoisted_with_a_note() -> None:
    text = f"{X}%1 = Neg (%0)\n%2 = Input {{name=z}} : tensor<f32[]>\noutputs: %1, %2\n"
    program, diagnostics = read(text)
    assert [(d.severity, d.code) for d in diagnostics] == [("note", "InputOrder")]
    assert [p.name for p in program.main.params] == ["0", "2"]
    assert program.main.attrs["input_names"] == ["x", "z"]


def test_unknown_attributes_are_kept() -> None:
    text = (
        X.replace("{", "{unit=(1, 2), ") + "%1 = Neg (%0) {flags=[a, true, 1.5], speed=fast} : tensor<f32[2, 3]>\noutputs: %1\n"
    )
    program, diagnostics = read(text)
    assert {d.code for d in diagnostics} == {"UnknownAttribute"} and not diagnostics.errors
    want = text.replace("{unit=(1, 2), name=x}", "{name=x, unit=(1, 2)}")
    assert show(program) == want == fmt(text)


def test_layout_keeps_what_the_author_wrote() -> None:
    text = (
        "\n\n# head\n%0=Input(){name:\"x\"}:Tensor<f32,[2]>#a \n\n\n\n%9 = Neg(%0) # dead\n%2 =   %9\n"
        "%3 = BinOp(Add, %2, %0)\n  # own line\noutputs: %3,%2\n"
    )  # fmt: skip
    want = (
        "# head\n%0 = Input {name=x} : tensor<f32[2]>  #a\n\n%9 = Neg (%0)  # dead\n%2 = %9\n"
        "%3 = Add (%2, %0)\n# own line\noutputs: %3, %2\n"
    )
    assert fmt(text) == want == fmt(want)
    assert show(good(text)) == show(good(want))


@given(st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_layout_of_repeated_instructions_is_that_of_each(seed: int) -> None:
    draw = random.Random(seed)
    spelled = [
        lambda a, b, t: f"Add (%{a}, %{b}){t}",
        lambda a, b, t: f"BinOp(Mul, %{a}, %{b}){t}  # product",
        lambda a, b, t: f"Slice(%{a}, [0:2, 0:3]){t}",
        lambda a, b, t: f"Slice (%{a}) {{steps=[1, 1], starts=[0, 0], ends=[2, 3]}}{t}",
        lambda a, b, t: f"%{a}",
    ]
    lines = [X.rstrip("\n")]
    for i in range(1, 40):
        t = draw.choice(["", " : tensor<f32[2, 3]>", " : Tensor<f32, [2, 3]>"])
        lines.append(f"%{i} = {draw.choice(spelled)(draw.randrange(i), draw.randrange(i), t)}")
    text = "\n".join([*lines, "outputs: %39"]) + "\n"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reader, "known", lambda *_: False)
        each = fmt(text)
    assert fmt(text) == each and fmt(each) == each


def test_layout_refuses_what_does_not_read() -> None:
    diagnostics = Diagnostics(Source("x", "%0 = Input {name=x\n"))
    assert format_text(diagnostics.source, diagnostics) is None
    assert diagnostics.errors


def test_all_independent_errors_in_order() -> None:
    text = (
        X
        + "%1 = Relu (%9)\n"  # undefined
        + "%2 = Neg (%1)\n"  # silent
        + "%3 = Frob (%0) {a=1.2.3}\n"  # not a number
        + "%4 = Frob (%0)\n"  # unknown opcode
        + "%5 = Add (%3, %4)\n"  # silent
        + "%6 = Sum (%0) {axes=[3], keepdims=true}\n"  # axis
        + "%0 = Neg (%0)\n"  # redefined
        + "%7 = Reshape (%0) {new_shape=[5]} : tensor<f32[5]>\n"  # count
        + "outputs: %6, %8\n"
    )
    want = ["E4001", "E1005", "E6003", "E3004", "E4002", "E3007", "E4003"]
    assert codes(text) == want == codes(text)


WHOLE = """%0 = Input {name=x} : tensor<f32[2, 3]>
%1 = ConstTensor([1.0, 2.0, 3.0]) : Tensor<f32, [3]>
%2 = Mul (%0, %1) : tensor<f32[2, 3]>
%3 = BinOp(Add, %2, %2)
%4 = %3
%5 = Sum (%4) {axes=[1], keepdims=false} : tensor<f32[2]>
outputs: %5, %2
"""


@pytest.mark.parametrize("wrong", ["", "@", "zz"])
@pytest.mark.parametrize("token", sorted(set(re.findall(r"%?\w+|\S", WHOLE)) - set("1234")))
def test_a_token_that_is_wrong_is_told_once(token: str, wrong: str) -> None:
    for m in re.finditer(rf"(?<![\w%]){re.escape(token)}(?!\w)", WHOLE):
        found = [code for code in codes(WHOLE[: m.start()] + wrong + WHOLE[m.end() :]) if code[1:].isdecimal()]
        assert len(found) <= 1, (m.start(), found)


def test_an_id_that_is_not_defined_is_told_once() -> None:
    text = "# one\n\n" + X + "%1 = Add (%7, %7)\n%2 = Neg (%7)\n%3 = Neg (%4)\n%5 = Exp (%4)\n%4 = Neg (%0)\noutputs: %7, %1\n"
    assert codes(text) == ["E4001", "E4001", "ValueIdOrder"]


FAULTS = [
    ("E1002", X + "%1 = Neg @0\noutputs: %0\n", "'@'"),
    ("E1003", '%0 = Input {name="x} : tensor<f32[2]>\noutputs: %0\n', "not closed"),
    ("E1005", X + "%1 = Reshape (%0) {new_shape=[6x]}\noutputs: %0\n", "6x"),
    ("E1007", X + "%1 = Neg (%0) : tensor<f32[2]>[2]\noutputs: %0\n", "expected end of line"),
    ("E1007", X + "outputs: %0\n%1 = Neg (%0)\n", "follow the outputs"),
    ("E1007", X + "nonsense\noutputs: %0\n", "nonsense"),
    ("E1007", X + "%01 Neg (%0)\noutputs: %1\n", "`=` is missing before"),
    ("E1007", X + "1 = Neg (%0)\n%2 = Exp (%1)\noutputs: %2\n", "value id"),
    ("E2001", X + "%1 = Neg (%0) : tensor<f64[2, 3]>\noutputs: %1\n", "tensor<f32[2, 3]>, declared tensor<f64[2, 3]>"),
    ("E2001", X + "%1 = ConstTensor {dtype=f32, shape=(1,), value=[1]} : tensor<f32[]>\noutputs: %1\n", "declared"),
    ("E2005", X + "%1 = Neg (%0) : tensor<f16[2, 3]>\noutputs: %1\n", "f16"),
    ("E2005", X + "%1 = ConstTensor {dtype=f16, shape=(1,), value=[1]}\noutputs: %1\n", "f16"),
    ("E2007", "%0 = Input {name=x} : tensor<f32[]>\n%1 = Input (%0) {name=y} : tensor<f32[]>\noutputs: %0\n", "no operands"),
    ("E3006", X + "%1 = Neg (%0) : tensor<f32[2, 0]>\noutputs: %1\n", "extent 0"),
    ("E3006", X + "%1 = Neg (%0) : tensor<f32[2, ?]>\noutputs: %1\n", "?"),
    ("E3006", "%0 = ConstTensor {dtype=f32, shape=(0,), value=[]}\noutputs: %0\n", "extent 0"),
    ("E4003", X, "no outputs"),
    ("E4003", X + "outputs:\n", "no outputs"),
    ("E4004", "%0 = Input {name=x}\noutputs: %0\n", "type"),
    ("E4004", "%0 = Input {name=3} : tensor<f32[]>\noutputs: %0\n", "name"),
    ("E4004", "%0 = Input {name=x} : tensor<f32[?]>\noutputs: %0\n", "symbolic"),
    ("E4004", "%0 = Input {name=x} : tensor<bool[2]>\noutputs: %0\n", "bool"),
    ("E4004", X + "%1 = Input {name=x} : tensor<f32[]>\noutputs: %0\n", "twice"),
    ("E4005", "%0 = ConstTensor([2147483648]) : tensor<i32[1]>\noutputs: %0\n", "out of the range of i32"),
    ("E4005", "%0 = ConstTensor([3e40]) : tensor<f32[1]>\noutputs: %0\n", "out of the range of f32"),
    ("E4005", "%0 = ConstF64(1e400)\noutputs: %0\n", "out of the range of f64"),
    ("E4005", "%0 = ConstI64(1.5)\noutputs: %0\n", "1.5"),
    ("E4005", "%0 = ConstTensor([true]) : tensor<i32[1]>\noutputs: %0\n", "true is not a value"),
    ("E4005", "%0 = ConstTensor([a]) : tensor<f32[1]>\noutputs: %0\n", "`a`"),
    ("E4005", "%0 = ConstTensor([[1, 2], [3]]) : tensor<i32[2, 2]>\noutputs: %0\n", "axis 1"),
    ("E4005", "%0 = ConstTensor(1.0) : tensor<f32[2]>\noutputs: %0\n", "axis 0"),
    ("E4013", "%0 = ConstTensor {shape=(1,), value=[1]}\noutputs: %0\n", "dtype"),
    ("E4013", "%0 = ConstTensor {dtype=f32, value=[1]}\noutputs: %0\n", "shape"),
    ("E4013", "%0 = ConstF32\noutputs: %0\n", "value"),
    ("E4013", X + "%1 = Sum (%0) {axes=1, keepdims=true}\noutputs: %1\n", "axes"),
    ("E4013", X + "%1 = Sum (%0) {axes=[true], keepdims=true}\noutputs: %1\n", "axes"),
    ("E4013", X + "%1 = Sum (%0) {axes=[1], keepdims=1}\noutputs: %1\n", "keepdims"),
    ("E4013", X + "%1 = Sum(%0, [1], true, 3)\noutputs: %1\n", "3 are given"),
    ("E4013", X + "%1 = Sum(%0, [1], true) {axes=[0]}\noutputs: %1\n", "twice"),
    ("E4013", X + "%1 = BinOp(%0, %0)\noutputs: %1\n", "operation"),
    ("E6003", X + "%1 = Div (%0, %0)\noutputs: %1\n", "Div"),
    ("E6003", X + "%1 = Rel (%0)\noutputs: %1\n", "Rel"),
]


@pytest.mark.parametrize(("code", "text", "words"), FAULTS)
def test_faults(code, text, words) -> None:
    diagnostics = read(text)[1]
    assert [d.code for d in diagnostics] == [code]
    assert words in diagnostics.items[0].message


def test_the_public_conformance_case_of_reshape() -> None:
    """The public YAML calls it E4003; the catalogue's code is E3007, and the words agree."""
    text = '%0 = Input() {name: "x"} : Tensor<f32, [2, 3]>\n%1 = Reshape(%0, [2, 4]) : Tensor<f32, [2, 4]>\noutputs: %1\n'
    (found,) = read(text)[1]
    assert found.code == {"E4003": "E3007"}["E4003"] and "Element count mismatch" in found.message


def test_places() -> None:
    text = X + "  %1 = Sum (%0) {axes=[5], keepdims=true}   # far\noutputs: %1\n"
    (found,) = read(text)[1]
    assert found.where[1:] == (2, 24)
    (found,) = read(X + "%1 = Neg (%0\noutputs: %1\n")[1]
    assert found.where[1:] == (2, 13) and found.message == "`)` is missing at the end of line"


@given(st.integers(0, 2**32), st.data())
@settings(max_examples=60, deadline=None)
def test_damaged_text_is_reported_and_never_crashes(seed, data) -> None:
    text = show(random_program(seed, 5))
    at = data.draw(st.integers(0, len(text)))
    damage = data.draw(st.sampled_from(["", '"', "%", "#", "{", "9", "\\", ":", "é", "\x00", "-"]))
    damaged = text[:at] + damage + text[at + data.draw(st.integers(0, 3)) :]
    assert codes(damaged) == codes(damaged)


def test_records() -> None:
    text = (
        X
        + '%1 = ConstTensor([0.1, inf]) : tensor<f32[2]>\n%5 = Reshape(%0, [-1])\n%6 = Input("y") : tensor<i64[]>\noutputs: %5\n'
    )
    lines = "".join(records.FORMAT.write(good(text), Diagnostics(), Options())).splitlines()
    assert [json.loads(x) for x in lines] == [
        {"value_id": 0, "opcode": "Input", "operands": [], "attributes": {"name": "x"}, "result_type": "tensor<f32[2, 3]>"},
        {"value_id": 6, "opcode": "Input", "operands": [], "attributes": {"name": "y"}, "result_type": "tensor<i64[]>"},
        {
            "value_id": 1,
            "opcode": "ConstTensor",
            "operands": [],
            "attributes": {"dtype": "f32", "shape": [2], "value": [0.1, "inf"]},
            "result_type": "tensor<f32[2]>",
        },
        {"value_id": 5, "opcode": "Reshape", "operands": [0], "attributes": {"new_shape": [-1]}, "result_type": "tensor<f32[6]>"},
    ]


def test_records_number_named_values() -> None:
    diagnostics = Diagnostics()
    lines = list(records.FORMAT.write(good('%x = Input("x") : tensor<f32>\n%5 = Neg(%x)\noutputs: %5\n'), diagnostics, Options()))
    assert [(r["value_id"], r["operands"]) for r in map(json.loads, lines)] == [(0, []), (1, [0])]
    assert [d.code for d in diagnostics] == ["ValuesRenumbered"]


def test_hostile_numbers_and_nesting() -> None:
    many = "9" * 6000
    assert codes(f"%{many} = ConstI64(1)\noutputs: %{many}\n") == []
    assert codes(f"%0 = ConstI64({many})\noutputs: %0\n") == ["E1005"]
    with pytest.raises(LimitExceeded):
        read(f"{X}%1 = Neg(%0) {{a={'[' * 3000}{']' * 3000}}}\noutputs: %1\n")
    deep = "[" * 200 + "]" * 200
    text = f"{X}%1 = Neg (%0) {{a={deep}}} : tensor<f32[2, 3]>\noutputs: %1\n"
    assert show(good(text)) == text


@pytest.mark.parametrize("opcode", ["Squeeze", "ExpandDims"])
def test_one_axis_may_be_given_as_a_number(opcode: str) -> None:
    x = "%0 = Input {name=x} : tensor<f32[2, 3, 1]>\n"
    one, many = (f"{x}%1 = {opcode} (%0) {{{given}}}\noutputs: %1\n" for given in ("axis=2", "axes=[2]"))
    assert show(good(one)) == show(good(many))
    assert codes(f"{x}%1 = {opcode} (%0) {{axes=2}}\noutputs: %1\n") == ["E4013"]
