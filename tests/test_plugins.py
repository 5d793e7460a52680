"""`--load FILE.py` and entry points: a dialect, a pass, a rule and a kernel from outside of the package."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ptir_tools import plugins
from ptir_tools.rewrite import additions
from tests.conftest import ROOT, TESTDATA, run_ptir

TOY = ROOT / "tests" / "plugins" / "toy"
MINE = TESTDATA / "plugins" / "mine.py"
PROGRAM = "; a comment\ntoy\nx = input 3\na =  flip x\nb = flip a\nc = add b x\nout c\n"
SMALL = "toy\nx = input 3\nc = add x x\nout c\n"
CALL = """func @f(%x: tensor<f32, 2>) -> (tensor<f32, 2>, tensor<f32, 2>) {
  %n = neg(%x) -> tensor<f32, 2>
  %a = erf(%n) -> tensor<f32, 2>
  %s = custom_call(%x) target["mine.softplus.v1"] attrs[{beta = 2.0}] -> tensor<f32, 2>
  return %a, %s
}
"""


def ptir(*args: str | Path, stdin: str = "", path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """One command line in a process of its own: what is loaded stays."""
    env = os.environ | ({"PYTHONPATH": str(path)} if path else {})
    command = [sys.executable, "-m", "ptir_tools", *map(str, args)]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, env=env, cwd=ROOT)


def printed(*args: str | Path, stdin: str = "", path: Path | None = None) -> str:
    ran = ptir(*args, stdin=stdin, path=path)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def toy(*args: str, stdin: str = PROGRAM) -> str:
    return printed(*args, "--load", TOY, stdin=stdin)


def test_a_dialect_from_outside_has_every_command() -> None:
    assert toy("verify", "-") == ""
    assert toy("fmt", "-") == PROGRAM.replace("  ", " ")
    assert toy("opt", "-") == SMALL
    assert toy("run", "--input", "x=[1,2,4]", "-").endswith("[2. 4. 8.]\n")
    assert "2 flip" in toy("info", "-")
    assert "last element first" in toy("ops", "toy.flip")
    assert "no op of that name" in toy("explain", "ToyOp")
    made = toy("gen", "--ir", "toy", "--seed", "3", stdin="")
    assert toy("verify", "-", stdin=made) == "" and toy("translate", "--to", "toy", "-", stdin=made) == made
    assert "peak" in toy("plan", "-")


def test_it_is_recognized_only_when_it_is_loaded() -> None:
    assert "UnknownFormat" in ptir("verify", "-", stdin=PROGRAM).stderr
    assert toy("verify", "-", "--from", "toy") == ""


def test_its_option_is_one_of_every_command() -> None:
    bare = "toy\nx = input\nout x\n"
    assert toy("opt", "--toy-length", "5", "-", stdin=bare) == "toy\nx = input 5\nout x\n"
    assert toy("fmt", "-", stdin=bare) == bare and "input 3" in toy("opt", "-", stdin=bare)
    assert "--toy-length" in toy("verify", "--help") and "--toy-length" not in printed("verify", "--help")
    ran = ptir("verify", "--load", TOY, "--toy-length", "x", "-", stdin=bare)
    assert ran.returncode == 2 and "--toy-length" in ran.stderr


def test_an_option_may_be_of_some_commands_only() -> None:
    ran = ptir("verify", "--load", TOY, "--shortest", "4", "-", stdin=PROGRAM)
    assert ran.returncode == 1 and "ToyShort" in ran.stderr and "x has 3 elements" in ran.stderr
    assert toy("verify", "--shortest", "3", "-") == "" and ptir("opt", "--load", TOY, "--shortest", "3", "-").returncode == 2
    assert toy("verify", "--help").index("TOY:") < toy("verify", "--help").index("--shortest")


def test_its_targets_are_listed() -> None:
    assert toy("targets").endswith("toy3  3 registers\n") and "toy3" not in printed("targets")
    assert toy("targets", "toy3") == "toy3\n  flip takes two cycles\n"


def test_its_errors_have_their_codes_and_places() -> None:
    ran = ptir("verify", "-", "--load", TOY, stdin="toy\nx = input 3\ny = half x\nout y\n")
    assert ran.returncode == 1 and "ToyOp" in ran.stderr and ":3:1" in ran.stderr


def test_its_passes_are_checked_logged_and_bisected(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert toy("opt", "--check", "--log-rewrites", str(log), "-") == SMALL
    assert "flip-of-flip" in log.read_text()
    assert "toy   canonicalize" in toy("opt", "--list-passes")
    (tmp_path / "p.toy").write_text(PROGRAM)
    found = ptir("bisect", tmp_path / "p.toy", "--load", TOY, "--check", "! grep -q 'add x x' {}").stdout
    assert "flip-of-flip" in found and f"--load {TOY}" in found


def test_a_rule_a_pass_and_a_kernel_of_a_file(tmp_path: Path) -> None:
    after = printed("opt", "--load", MINE, "-p", "canonicalize,number-values{start=5}", "-", stdin=CALL)
    assert after.index("erf(") < after.index("neg(") and "%v5" in after
    assert "number-values" in printed("opt", "--load", MINE, "--list-passes")
    run = printed("run", "--load", MINE, "--input", "x=[0,1]", "--precision", "6", "-", stdin=CALL)
    assert "0.346574" in run and "1.063464" in run  # log(1 + exp(2 x)) / 2
    plain = printed("opt", "-p", "canonicalize", "-", stdin=CALL)
    assert plain.index("neg(") < plain.index("erf(")
    assert ptir("opt", "--load", MINE, "--check", "-", stdin=CALL).returncode == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\nraise ValueError('no luck')\n", "bad.py:2: ValueError: no luck"),
        ("x = (\n", "bad.py:1: SyntaxError"),
        ("from ptir_tools import plugins\nplugins.add_pass('cse', 'ptir', print)\n", "there is a pass `cse`"),
    ],
)
def test_a_fault_is_reported_with_its_place(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(text)
    ran = ptir("verify", "-", "--load", tmp_path / "bad.py", stdin=CALL)
    assert ran.returncode == 2 and said in ran.stderr


def test_a_fault_of_a_pass_while_it_runs_is_the_plug_ins(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text(
        "from ptir_tools import plugins\ndef run(p, c):\n    '''Fail.'''\n    1 // 0\nplugins.add_pass('bad', '', run)\n"
    )
    ran = ptir("opt", "-p", "bad", "-", "--load", bad, stdin=CALL)
    assert ran.returncode == 2 and "bad.py:4: ZeroDivisionError" in ran.stderr


ERF = "func @f(%x: tensor<f32, 2>) -> tensor<f32, 2> {\n  %a = erf(%x) -> tensor<f32, 2>\n  return %a\n}\n"
FAULTY = {
    "pass": (
        """
def run(p, c):
    "Break it."
    op = p.main.body[0]
    op.operands = ()
plugins.add_pass("mine", "ptir", run)
""",
        ("opt", "-p", "mine", "-"),
        ":2: the pass breaks the program after pass `mine`: erf takes",
    ),
    "rule": (
        """
from ptir_tools.rewrite.patterns import rewrites
@rewrites("ptir.erf")
def mine(op):
    found = bool(op.root.operands)
    if found:
        op.rw.set_operands(op.root, ())
    return found
plugins.add_rules("ptir", mine)
""",
        ("opt", "-"),
        ":3: the rules of plug-ins that ran (`mine`) break the program",
    ),
    "conversion": (
        """
from ptir_tools.convert import ConversionTarget
from ptir_tools.core.dialect import Dialect, Format, FormatEntry
def write(program, diagnostics, options):
    return []
plugins.add_dialect(Dialect("mine", formats=(FormatEntry("mine", Format("mine", "mine", None, write), readable=False),)))
def convert(program, diagnostics, options):
    return program
plugins.add_conversion(ConversionTarget("ptir", "mine", convert))
""",
        ("translate", "--to", "mine", "-"),
        ":7: the conversion from ptir to mine gives <ptir program",
    ),
}
TOY_FAULTY = {
    "writer": ("write=write", "write=lambda p, d, o: [1]", ("opt", "-"), "the writer of `toy` gives int, not text"),
    "no writer": ("write=write", "write=lambda p, d, o: None", ("opt", "-"), "the writer of `toy` gives NoneType, not text"),
    "layout": ("layout=layout", "layout=lambda s, d: 3", ("fmt", "-"), "the layout of `toy` gives int, not text"),
    "generator": (
        "generate=generate",
        "generate=lambda c, **how: None",
        ("gen", "--ir", "toy", "--seed", "1"),
        "the generator of toy gives NoneType, not a program",
    ),
    "reader": ("read=read", "read=lambda s, d, o: None", ("verify", "-"), "the reader of `toy` gives neither a program"),
}


@pytest.mark.parametrize("name", FAULTY)
def test_what_a_plug_in_breaks_is_its_fault(name: str, tmp_path: Path) -> None:
    text, args, said = FAULTY[name]
    (tmp_path / "mine.py").write_text(f"from ptir_tools import plugins{text}")
    ran = ptir(*args, "--load", tmp_path / "mine.py", stdin=ERF)
    assert ran.returncode == 2 and f"mine.py{said}" in ran.stderr, ran.stderr


@pytest.mark.parametrize("name", TOY_FAULTY)
def test_what_a_dialect_gives_is_checked(name: str, tmp_path: Path) -> None:
    usual, wrong, args, said = TOY_FAULTY[name]
    text = (
        (TOY / "__init__.py")
        .read_text()
        .replace('Format("toy", "toy", read, write, layout)', 'Format("toy", "toy", read=read, write=write, layout=layout)')
    )
    assert usual in text
    (tmp_path / "toy.py").write_text(text.replace(usual, wrong))
    ran = ptir(*args, "--load", tmp_path / "toy.py", stdin=PROGRAM)
    assert ran.returncode == 2 and said in ran.stderr and f"{tmp_path / 'toy.py'}:" in ran.stderr, ran.stderr


@pytest.mark.parametrize(
    ("made", "said"), [("None", "gives NoneType, not an array"), ("xs[0][:1]", "gives an array of shape (1,)")]
)
def test_a_kernel_that_gives_no_array_of_its_type(made: str, said: str, tmp_path: Path) -> None:
    usual = 'np.log1p(np.exp(xs[0] * values["beta"])) / values["beta"]'
    wrong = MINE.read_text().replace(usual, made)
    assert usual not in wrong
    (tmp_path / "mine.py").write_text(wrong)
    ran = ptir("run", "--load", tmp_path / "mine.py", "--engine", "reference", "--input", "x=[0,1]", "-", stdin=CALL)
    assert ran.returncode == 2 and said in ran.stderr and "mine.py:" in ran.stderr, ran.stderr


RULE = """from ptir_tools import plugins
from ptir_tools.rewriting import OpView, rewrites
@rewrites("ptir.maximum")
def mine(op: OpView) -> bool:
    "A rule with a mistake."
BODY
plugins.add_rules("ptir", mine)
"""
MAXIMUM = """func @f(%x: tensor<f32, 3>, %y: tensor<f32, 3>) -> tensor<f32, 3> {
  %a = neg(%x) -> tensor<f32, 3>
  %b = maximum(%a, %y) -> tensor<f32, 3>
  return %b
}
"""
FAULTY_RULES = {
    "raises": "return op.nothing",
    "fails an assertion": "assert False",
    "looks up a wrong key": "return {}[op.root]",
    "recurses": "return mine.function(op)",
    "returns a number": "return 1",
    "returns nothing": "pass",
    "returns its replacement": 'return op.rw.build(op.root, "maximum", op.y, op.x)',
    "lies": "return True",
    "swaps for ever": 'return op.replace(op.rw.build(op.root, "maximum", op.y, op.x))',
    "grows for ever": 'return op.replace(op.rw.build(op.root, "maximum", op.rw.build(op.root, "maximum", op.x, op.y), op.y))',
    "gives another type": 'return op.replace(op.rw.build(op.root, "cast", op.x, dtype="f64"))',
    "builds too few operands": 'return op.replace(op.rw.build(op.root, "add", op.x))',
    "builds wrong types": 'return op.replace(op.rw.build(op.root, "add", op.x, op.rw.build(op.root, "cast", op.y, dtype="f64")))',
    "builds an op that there is not": 'return op.replace(op.rw.build(op.root, "maximal", op.x, op.y))',
    "takes an operand away": "op.rw.set_operands(op.root, ()); return True",
    "changes and says no": "op.rw.set_operands(op.root, ()); return False",
    "edits by hand": "op.root.operands = (); return False",
    "changes a type by hand": 'op.root.results[0].type = op.rw.build(op.root, "cast", op.x, dtype="f64").type; return False',
    "stops half way": 'op.rw.replace(op.root, op.y); raise ValueError("no")',
    "ends the process": "raise SystemExit(0)",
}


@pytest.mark.parametrize("flags", [(), ("--expensive-checks",), ("--no-verify-each",)], ids=str)
@pytest.mark.parametrize("name", FAULTY_RULES)
def test_a_rule_that_is_wrong_is_the_plug_ins_fault(
    name: str, flags: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "grows for ever" and flags == ("--expensive-checks",):
        return  # each check takes as long as the program, which has grown
    monkeypatch.setattr(additions, "_ADDED", {})  # they are forgotten afterwards
    monkeypatch.setattr(plugins, "_loaded", {})
    rule = tmp_path / "rule.py"
    rule.write_text(RULE.replace("BODY", f"    {FAULTY_RULES[name]}"), "utf-8")
    if (
        name == "grows for ever"
    ):  # in a process of its own, where no pattern is checked, which takes as long as the program is large
        there = ptir("opt", "--load", rule, *flags, "-", stdin=MAXIMUM)
        status, err, out = there.returncode, there.stderr, there.stdout
    else:
        ran = run_ptir("opt", "--load", rule, *flags, "-", stdin=MAXIMUM.encode())
        status, err, out = ran.status, ran.err, ran.text
    assert status == 2 and re.match(rf"error: {rule}:[3-6]: .", err), err
    assert out == ""


def test_the_line_of_a_rule_that_raises_is_named(tmp_path: Path) -> None:
    plugin = tmp_path / "rule.py"
    plugin.write_text((TESTDATA / "tasks/wrong_rule.py").read_text("utf-8").replace("op.y", "op.rhs"), "utf-8")
    found = ptir("opt", "--load", str(plugin), "testdata/tasks/model.ptir")
    assert found.returncode == 2 and f"{plugin}:10: the rule `sub-of-sub` failed: AttributeError" in found.stderr


def test_rules_are_added_to_any_ir(tmp_path: Path) -> None:
    """MIND, whose canonicalization is not that of PTIR: what the rule makes is canonicalized again."""
    added = tmp_path / "added.py"
    added.write_text("""
from ptir_tools import plugins
from ptir_tools.dialects import load_dialect
from ptir_tools.rewrite.patterns import rewrites

load_dialect("mind")

@rewrites("mind.Neg", operands=["mind.Neg"])
def neg_of_neg(op):
    inner = op.root.operands[0].op
    return inner is not None and inner.defn is op.root.defn and op.replace(inner.operands[0])

plugins.add_rules("mind", neg_of_neg)
""")
    text = "%0 = Input {name=x} : tensor<f32[2, 3]>\n%1 = Neg (%0)\n%2 = Neg (%1)\n%3 = Neg (%2)\noutputs: %3\n"
    assert printed("opt", "-", stdin=text).count("Neg") == 3
    assert printed("opt", "--load", added, "-", stdin=text).count("Neg") == 1


def test_no_such_file() -> None:
    ran = ptir("verify", "-", "--load", "nowhere.py", stdin=CALL)
    assert ran.returncode == 4 and "nowhere.py" in ran.stderr


def test_entry_points_of_installed_packages(tmp_path: Path) -> None:
    info = tmp_path / "toyplug-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toyplug\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[ptir_tools.plugins]\ntoy = toyplug\n")
    (tmp_path / "toyplug").symlink_to(TOY)
    assert printed("opt", "-", stdin=PROGRAM, path=tmp_path) == SMALL
    (info / "entry_points.txt").write_text("[ptir_tools.plugins]\ntoy = missing\n")
    ran = ptir("opt", "-", stdin=PROGRAM, path=tmp_path)
    assert ran.returncode == 2 and "plug-in toy" in ran.stderr


def test_the_python_api_loads_once() -> None:
    code = f"import ptir_tools as p; a = p.load({str(TOY)!r}); assert p.load({str(TOY)!r}) is a; "
    code += f"print(p.write(p.optimize(p.read({PROGRAM!r}))), end='')"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert ran.stdout == SMALL


def test_no_plug_in_costs_no_metadata() -> None:
    code = "import sys; from ptir_tools.cli import invoke; invoke(['verify', '-']); print('importlib.metadata' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], input=CALL, capture_output=True, text=True, cwd=ROOT)
    assert ran.stdout == "False\n"


WRONG = """
from ptir_tools import plugins
from ptir_tools.core.dialect import Dialect, Format, FormatEntry, Option
from ptir_tools.core.builder import single_function

def read(source, diagnostics, options):
    return {given}

def write(program, diagnostics, options):
    yield "mine"

CHOSEN = Option("{option}", 7, flag="{flag}", parse=int)
plugins.add_dialect(Dialect("mine", formats=(FormatEntry("mine", {module}, begins=r"{begins}"),), options=(CHOSEN,)))
"""
RIGHT = {"given": "None", "option": "mine", "flag": "--mine", "module": 'Format("mine", "mine", read, write)', "begins": "mine"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, "the reader of `mine` gives neither a program nor an error"),
        ({"given": "'text'"}, "the reader of `mine` gives neither a program nor an error"),
        ({"option": "profile"}, "there is an option `profile` already"),
        ({"flag": "--profile"}, "there is an option `--profile` already"),
        ({"flag": "--strict"}, "the flag --strict of the option `mine` is taken"),
        ({"flag": "strict me"}, "`strict me` is not a flag"),
        ({"module": "'no.such.module'"}, "the format `mine`: there is no module no"),
        ({"begins": "(mine"}, "the format `mine`: `(mine` is not a regular expression"),
    ],
)
def test_what_is_wrong_with_a_dialect_from_outside_is_said(tmp_path: Path, change: dict[str, str], said: str) -> None:
    (tmp_path / "wrong.py").write_text(WRONG.format(**{**RIGHT, **change}), "utf-8")
    ran = ptir("verify", "-", "--load", tmp_path / "wrong.py", stdin="mine\n")
    assert ran.returncode == 2 and said in ran.stderr, ran.stderr
    assert "Traceback" not in ran.stderr and "Warning" not in ran.stderr


SUBTRACTS = """
from ptir_tools import plugins
from ptir_tools.dialects import load_dialect

def run(program, context):
    "Make additions subtractions, which is wrong."
    for op in (op for f in program.functions for op in f.body):
        if op.defn.name == "ptir.add":
            op.defn = load_dialect("ptir").ops["sub"]

plugins.add_pass("wrong", "ptir", run)
"""
AFTER_A_CALL = """func @f(%x: tensor<f32, 8>) -> tensor<f32, 8> {
  %e = exp(%x) -> tensor<f32, 8>
  %s = custom_call(%e) target["mine.softplus.v1"] attrs[{beta = 2.0}] -> tensor<f32, 8>
  %t = tanh(%s) -> tensor<f32, 8>
  %a = add(%t, %x) -> tensor<f32, 8>
  return %a
}
"""


def test_what_comes_after_a_custom_call_is_compared(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(SUBTRACTS)
    load = ["--load", MINE, "--load", tmp_path / "wrong.py"]
    ran = ptir("opt", *load, "-p", "wrong", "--check", stdin=AFTER_A_CALL)
    assert ran.returncode == 1 and "CheckFailed" in ran.stderr
    ran = ptir("bisect", *load, "-p", "wrong", stdin=AFTER_A_CALL)
    assert ran.returncode == 1 and "wrong" in ran.stdout
    several = f"{AFTER_A_CALL.replace('@f', '@g').replace('add(', 'sub(')}{AFTER_A_CALL}"
    several = f"program @g (spec_version = ptir.v0.4) {{\n{several}}}\n"
    ran = ptir("opt", *load, "-p", "wrong", "--check", stdin=several)
    assert ran.returncode == 1 and "error[CheckFailed]: --check of @f run 1" in ran.stderr
    ran = ptir("bisect", *load, "-p", "wrong", stdin=several)
    assert ran.returncode == 1 and "wrong" in ran.stdout
    ran = ptir("opt", *load, "-p", "canonicalize", "--check", stdin=AFTER_A_CALL)
    assert ran.returncode == 0 and ran.stderr.startswith("--check: 3 runs agree"), ran.stderr


BY_HAND = """
from ptir_tools import plugins

def run(program, context):
    "Let all users of %e use %x, without a rewriter."
    (e,) = [op for op in program.main.body if op.result.name == "e"]
    for op in program.main.body:
        op.operands = tuple(e.operands[0] if v is e.result else v for v in op.operands)

plugins.add_pass("by-hand", "ptir", run)
"""


def test_the_passes_after_one_that_edits_by_hand_see_what_it_did(tmp_path: Path) -> None:
    (tmp_path / "by_hand.py").write_text(BY_HAND)
    program = AFTER_A_CALL.replace("add(%t, %x)", "add(%t, %e)").replace("custom_call(%e)", "custom_call(%x)")
    load = ["--load", MINE, "--load", tmp_path / "by_hand.py"]
    made = printed("opt", *load, "-p", "canonicalize,by-hand,canonicalize,dce", stdin=program)
    assert "exp" not in made and "add(%t, %x)" in made
    log = tmp_path / "log"
    printed("opt", *load, "-p", "by-hand", "--log-rewrites", log, stdin=program)
    assert '"pass": "by-hand", "event": "changed"' in log.read_text()
