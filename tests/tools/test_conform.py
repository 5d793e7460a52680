"""Conformance cases: ours all pass, cover both specifications, and a wrong implementation is found out."""

from __future__ import annotations

import json
import random
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.source import Source
from ptir_tools.dialects import load_dialect
from ptir_tools.tools import cases, conform
from ptir_tools.tools.cases import Case
from ptir_tools.tools.conform import Answer, Found, Ours, evaluate
from tests.conftest import ROOT, TESTDATA, run_ptir

CORPUS = TESTDATA / "conformance"
SEED_GRAPHS = ("5_1_gemm", "5_2_conv2d", "5_3_attention")
FILES = {ir: sorted((CORPUS / ir).rglob("*.yaml")) for ir in conform.IRS}


def case_of(path: Path | str) -> Case:
    text = path.read_text("utf-8") if isinstance(path, Path) else path
    diagnostics = Diagnostics(Source("case.yaml", text))
    found = cases.read(diagnostics.source, diagnostics)
    assert found is not None and not diagnostics.items, [d.message for d in diagnostics]
    return found


@pytest.mark.parametrize("engine", ["reference", "numpy", "native"])
@pytest.mark.parametrize("ir", conform.IRS)
def test_every_case_passes_on_every_engine(ir: str, engine: str) -> None:
    found = {str(path): evaluate(case_of(path), ir, Ours(ir, engine)) for path in FILES[ir]}
    assert len(found) >= 100
    assert {path: outcome for path, outcome in found.items() if outcome.status != "passed"} == {}


@pytest.mark.parametrize("ir", conform.IRS)
def test_every_op_has_a_case_with_numbers(ir: str) -> None:
    modules = "\n".join(case.module or "" for path in FILES[ir] if (case := case_of(path)).results)
    assert not [name for name in load_dialect(ir).ops if name not in modules]


# E1001 is a file that is no UTF-8, which YAML cannot hold; E5001 needs a plug-in's instruction.
NO_CASE = {"E1001", "E5001"}


@pytest.mark.parametrize("ir", conform.IRS)
def test_every_code_of_the_catalogue_has_a_case(ir: str) -> None:
    wanted = {case_of(path).code for path in FILES[ir]}
    codes = {c.code for c in load_dialect(ir).explain() if c.wrong}
    remarks = {"UnknownAttribute", "ValueIdOrder", "InputOrder", "ValuesRenumbered", "UnknownKey", "JsonComment", "PoolMacro"}
    remarks |= {"ImplicitCast", "ImplicitExpand", "ReducedAxisAlignment", "SuspiciousReshape", "InferredSymbol"}
    assert codes - remarks - wanted - NO_CASE == set()


@pytest.mark.parametrize("name", SEED_GRAPHS)
def test_the_graphs_of_the_specification_are_cases(name: str) -> None:
    case = case_of(CORPUS / "tiny" / "specification" / f"{name}.yaml")
    assert case.module == (TESTDATA / "tiny" / f"seed_{name}.json").read_text("utf-8") and case.results


class Altered:
    """Our answer, changed."""

    def __init__(self, ir: str, change: dict[str, object]) -> None:
        self.ours, self.change = Ours(ir), change

    def __call__(self, task: str, case: Case) -> Answer:
        answer = self.ours(task, case)
        for name, value in self.change.items():
            setattr(answer, name, value)
        return answer


ADD, RESHAPE, CANONICAL = "runtime/add", "shapes/element_count", "ir_verification/canonical_operand_order"
MATRIX = np.zeros((3, 4), np.float32)
WRONG = [
    (ADD, {"outputs": [MATRIX]}, "output 0[0, 0]: expected "),
    (ADD, {"outputs": [MATRIX.astype(np.float64)]}, "expected f32[3, 4], found float64[3, 4]"),
    (ADD, {"outputs": [MATRIX[:2]]}, "expected f32[3, 4], found float32[2, 4]"),
    (ADD, {"outputs": [MATRIX, MATRIX]}, "expected 1 outputs, found 2"),
    (ADD, {"errors": [Found("E3001", "no")]}, "expected no error"),
    (RESHAPE, {"errors": []}, "found no error"),
    (RESHAPE, {"errors": [Found("E3006", "Element count mismatch")]}, "expected E3007"),
    (RESHAPE, {"errors": [Found("E3007", "something")]}, "expected E3007"),
    ("lexical/escape", {"errors": [Found("E1004", "Invalid escape sequence", 1, 23)]}, "expected E1004 at 1:24"),
    (CANONICAL, {"text": "%0 = Input {name=x} : tensor<f32[2]>\noutputs: %0\n"}, "+outputs: %0"),
    (CANONICAL, {"text": "outputs: %0\n"}, "the answered module is wrong: E4003"),
    (
        "autodiff/module",
        {"text": "%0 = Input {name=x} : tensor<f64[2]>\n%1 = Sum(%0, [], false)\noutputs: %1, %0\n"},
        "expected ",
    ),
    ("autodiff/dot", {"text": "%0 = Input {name=z} : tensor<f64[2]>\noutputs: %0\n"}, "no input `x`"),
]


@pytest.mark.parametrize(("name", "change", "reason"), WRONG)
def test_a_wrong_answer_fails(name: str, change: dict[str, object], reason: str) -> None:
    case = case_of(CORPUS / "mind" / f"{name}.yaml")
    assert evaluate(case, "mind", Ours("mind")).status == "passed"
    outcome = evaluate(case, "mind", Altered("mind", change))
    assert outcome.status == "failed" and reason in outcome.reason


def test_tolerances_and_special_values() -> None:
    case = case_of(CORPUS / "mind" / "runtime" / "exp.yaml")
    right = Ours("mind")("run", case).outputs[0]
    for off, status in ((1e-13, "passed"), (1e-11, "failed")):
        assert evaluate(case, "mind", Altered("mind", {"outputs": [right * (1 + off)]})).status == status
    for value in (0.0, np.inf):  # where NaN is expected
        assert evaluate(case, "mind", Altered("mind", {"outputs": [np.where(np.isnan(right), value, right)]})).status == "failed"


def test_a_public_code_for_what_the_catalogue_calls_otherwise() -> None:
    case = case_of(CORPUS / "mind" / "ir_verification" / "element_count.yaml")
    assert case.code == "E4003" and evaluate(case, "mind", Ours("mind")).status == "passed"
    case.message = ""  # without the words E3007 is another error
    assert evaluate(case, "mind", Ours("mind")).status == "failed"


HEAD = 'description: "d"\ncategory: runtime\nprofile: cpu\n'
MODULE = "input:\n  ir_module: |\n    %0 = Input {name=x} : tensor<f32[]>\n    outputs: %0\n"
GOOD = "expected:\n  status: success\n"


def test_what_is_skipped() -> None:
    source = case_of(f"{HEAD}input:\n  source: |\n    fn f() -> f32 {{ 1.0 }}\n{GOOD}")
    assert evaluate(source, "mind", Ours("mind")).status == "skipped"
    assert evaluate(case_of((HEAD + MODULE + GOOD).replace("cpu", "gpu")), "mind", Ours("mind")).status == "skipped"


def test_patterns_and_words_of_values() -> None:
    output = "  output:\n    result: {dtype: f32, shape: [2], values_pattern: all_ones}\n"
    text = f"{HEAD}{MODULE.replace('f32[]', 'f32[2]')}  tensors: {{x: [1, 1e0]}}\n{GOOD}{output}"
    assert evaluate(case_of(text), "mind", Ours("mind")).status == "passed"
    assert evaluate(case_of(text.replace("1e0", "2")), "mind", Ours("mind")).status == "failed"
    special = text.replace("[1, 1e0]", "[.nan, -.inf]").replace("values_pattern: all_ones", "values: [nan, -inf]")
    assert evaluate(case_of(special), "mind", Ours("mind")).status == "passed"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("- 1\n", "expected a mapping"),
        (HEAD + GOOD, "`input` is missing"),
        (HEAD + MODULE, "`expected` is missing"),
        (HEAD + MODULE.replace("ir_module", "module") + GOOD, "`module` is not read"),
        (HEAD + MODULE + "expected:\n  status: fine\n", "status is one of success, error"),
        (HEAD + MODULE + "expected:\n  status: error\n", "`error` is missing"),
        (HEAD + MODULE + "expected:\n  status: error\n  error: {message_contains: x}\n", "`code` is missing"),
        (HEAD + MODULE + GOOD + "  error: {code: E1}\n", "this does not go with status success"),
        (HEAD + MODULE + GOOD + "  output: {}\n", "output is one of"),
        (HEAD + MODULE + GOOD + "  output: {result: {dtype: f32, shape: [1.5], values: 1}}\n", "expected an integer"),
        (HEAD + MODULE + GOOD + "  output: {result: {dtype: f32, shape: [-1], values: 1}}\n", "not negative"),
        (HEAD + MODULE + GOOD + "  output: {result: {dtype: f32, shape: []}}\n", "`values_pattern` is missing"),
        (HEAD + MODULE + GOOD + "  output: {result: {dtype: f32, shape: [], values_pattern: all}}\n", "all_zeros, all_ones"),
        (HEAD + MODULE + GOOD + "  output: {ir: [1]}\n", "`ir` is a text"),
        (HEAD + MODULE + "  tensors: {x: {a: 1}}\n" + GOOD, "expected a number or lists of numbers"),
        (HEAD + HEAD + MODULE + GOOD, "`description` is given twice"),
        (HEAD + MODULE + "  tensors: {x: [1, 2}\n" + GOOD, "expected ',' or ']', but got '}'"),
        (HEAD.replace('"d"', "&a d"), "anchors and tags of YAML are not read here"),
        (HEAD.replace('"d"', '"d'), "found unexpected end of stream"),
        (HEAD.replace('"d"', "a: b"), "mapping values are not allowed here"),
        (HEAD.replace('"d"', "[" * 100), "nested more than 64 deep"),
        ("a:\n\tb: 1\n", "found character '\\t' that cannot start any token"),
        ("a:\n  b: 1\n c: 1\n", "expected <block end>"),
        ("a: 1\n---\nb: 2\n", "a second document of YAML"),
        ('a: "\\U00110000"\n', "an escape that is not a character"),
        ("a: \x00\n", "special characters are not allowed"),
        ("", "the file is empty"),
    ],
)
def test_what_is_no_case(text: str, message: str) -> None:
    diagnostics = Diagnostics(Source("case.yaml", text))
    cases.read(diagnostics.source, diagnostics)
    assert {d.code for d in diagnostics} == {"InvalidCase"} and any(message in d.message for d in diagnostics)
    assert all(d.span is not None for d in diagnostics)


def plain(node: cases.Node) -> object:
    if isinstance(node.value, dict):
        return {key: plain(x) for key, x in node.value.items()}
    return [plain(x) for x in node.value] if isinstance(node.value, list) else node.value


def test_values_of_yaml() -> None:
    text = (
        "# comment\na: 1\nb:\n- x: -2.5e3\n  y: [true, 'it''s',\n    null] # c\n-\n  z: ~\n- w # c\nc: {d: \"q\\n\", e: []}\n"
        "f: |-\n  one\n   two\n\n  three\n\ng: |\n  end\nh:\nlast: x#y\nsmall: 1e-6\nno: no\nquoted: '1'\nfolded: >-\n  a\n  b\n"
    )
    assert plain(cases.tree(text)) == {
        "a": 1, "b": [{"x": -2500.0, "y": [True, "it's", None]}, {"z": None}, "w"], "c": {"d": "q\n", "e": []},
        "f": "one\n two\n\nthree", "g": "end\n", "h": None, "last": "x#y", "small": 1e-6, "no": "no", "quoted": "1",
        "folded": "a b",
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(300))
def test_a_broken_case_is_reported(seed: int) -> None:
    draw = random.Random(seed)
    text = draw.choice(FILES["mind"] + FILES["tiny"]).read_text("utf-8")
    for _ in range(draw.randint(1, 3)):
        at, to = sorted((draw.randrange(len(text)), draw.randrange(len(text))))
        piece = draw.choice(
            ["", " ", "\n", "\t", ":", "[", "{", "}", "- ", "|", "'", '"', "#", "\x00", "1e999", "  ", text[at : at + 40]]
        )
        text = text[:at] + piece + text[draw.choice((at, at + 1, to)) :]
    diagnostics = Diagnostics(Source("case.yaml", text))
    assert (cases.read(diagnostics.source, diagnostics) is None) == (diagnostics.errors > 0)
    assert all(d.span is not None and 0 <= d.span.start <= len(text) for d in diagnostics)


# Another implementation: NumPy alone, of one instruction.
OTHER = """
import json, re, sys, time
import numpy as np
task, module, inputs = sys.argv[1:]
text, given = open(module).read(), json.load(open(inputs))
if "Frobnicate" in text:
    sys.exit("error[E6003]: no opcode Frobnicate, line 2:6")
if "Neg $0" in text:
    print("E1002 at 2:10"); sys.exit(1)
if task == "run" and "Add" in text:
    x, y = (np.array(v, np.float32) for v in given["tensors"].values())
    found = x + y
    print(json.dumps([{"dtype": "f32", "shape": list(found.shape), "values": found.tolist()}]))
elif task == "canonicalize":
    print(text.replace("Mul (%1, %0)", "Mul (%0, %1)").replace("Add (%3, %0)", "Add (%0, %3)"))
elif task == "run":
    print("nonsense")
elif "Exp" in text:
    time.sleep(60)
"""


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("runtime/add", None),
        ("ir_verification/opcode", None),
        ("lexical/character", None),
        ("ir_verification/canonical_operand_order", None),
        ("ir_verification/canonical_pruned", "+%2 = Exp (%1)"),
        ("runtime/add_wraps", "expected i32[3], found float32[3]"),
        ("runtime/mul", "the outputs are not in the form"),
        ("shapes/axis", "found no error"),
        ("type_checker/exp_of_integers", "no answer within 5 s"),
    ],
)
def test_another_implementation(tmp_path: Path, name: str, reason: str | None) -> None:
    tool = tmp_path / "other.py"
    tool.write_text(OTHER)
    words = f"{shlex.quote(sys.executable)} {shlex.quote(str(tool))} {{task}} {{file}} {{inputs}}"
    outcome = evaluate(case_of(CORPUS / "mind" / f"{name}.yaml"), "mind", conform.Command(words, "mind", timeout=5))
    assert outcome.status == ("failed" if reason else "passed"), outcome.reason
    assert (reason or "") in outcome.reason


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("no-such-tool {file}", 2, "no such file"),
        ("'", 2, "no closing quotation"),
        ("", 2, "needs a command"),
        ("sh -c 'kill -9 $$'", 1, "ended by signal 9"),
    ],
)
def test_a_command_that_cannot_run(words: str, status: int, said: str) -> None:
    ran = run_ptir("conform", "mind", CORPUS / "mind" / "shapes" / "axis.yaml", "--command", words)
    assert ran.status == status and said in ran.text + ran.err


def test_the_reports(tmp_path: Path) -> None:
    folder = tmp_path / "cases"
    folder.mkdir()
    good = (CORPUS / "mind" / "runtime" / "add.yaml").read_text("utf-8")
    (folder / "a.yaml").write_text(good)
    (folder / "b.yml").write_text(good.replace("dtype: f32", "dtype: f64"))
    (folder / "c.yaml").write_text("nothing")
    (folder / "ignored.txt").write_text("nothing")
    ran = run_ptir("conform", "mind", folder)
    lines = [line for line in ran.text.splitlines() if line.startswith(("ok", "not ok", "1..", "#", "TAP"))]
    last = "# 1 passed, 2 failed, 0 skipped"
    assert [line.split(" - ")[0] for line in lines] == ["TAP version 14", "1..3", "ok 1", "not ok 2", "not ok 3", last]
    assert ran.status == 1
    assert "error[InvalidCase]" in ran.err
    as_json = json.loads(run_ptir("conform", "mind", folder, "--json", "-q").text)
    assert [c["status"] for c in as_json["cases"]] == ["passed", "failed", "failed"]
    assert (as_json["ir"], as_json["passed"], as_json["failed"], as_json["skipped"]) == ("mind", 1, 2, 0)


@pytest.mark.parametrize(
    ("args", "status"), [(("mind", "no/such/folder"), 4), (("mind", "docs"), 2), (("pto", "docs"), 2), (("mind",), 2)]
)
def test_exit_codes(args: tuple[str, ...], status: int) -> None:
    assert run_ptir("conform", *args).status == status


def test_our_own_command_line_is_such_a_command() -> None:
    """The form of `--command` asks for no more than what a command line prints anyway, except for outputs."""
    words = f"{shlex.quote(sys.executable)} -m ptir_tools {{task}} {{file}} --from mind"
    for name in ("shapes/axis", "lexical/escape", "ir_verification/canonical_operand_order"):
        case = case_of(ROOT / "testdata" / "conformance" / "mind" / f"{name}.yaml")
        assert evaluate(case, "mind", conform.Command(words, "mind", timeout=60)).status == "passed"
