"""What surrounds a pipeline on the command line: reproducers of crashes, their replay, bisection, traces, logs."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ptir_tools.core.dialect import Program
from ptir_tools.dialects.ptir import DIALECT
from ptir_tools.dialects.ptir.rewrites.helpers import HELPERS, splat
from ptir_tools.passes import PassContext, lookup
from ptir_tools.rewrite.pattern_set import PatternSet
from ptir_tools.rewrite.rules import rules
from tests.conftest import Ran

STEPS = "testdata/opt/data/steps.ptir"
Ptir = Callable[..., Ran]


def crash(program: Program, context: PassContext) -> None:
    """A pass that fails where there are at most three ops."""
    if len(program.main.body) <= 3:
        raise IndexError("three is too few")


@pytest.fixture
def crashing(monkeypatch: pytest.MonkeyPatch) -> None:
    """`dce` crashes on what canonicalize and cse leave of STEPS."""
    monkeypatch.setattr(lookup("dce", "ptir"), "run", crash)


def reproducer(ran: Ran) -> Path:
    """The file that the error names."""
    found = re.search(r"a reproducer is in (\S+\.txt)", ran.err)
    assert ran.status == 70 and found, ran.err
    return Path(found[1])


@pytest.mark.usefixtures("crashing")
def test_crash_leaves_the_program_before_the_pass_and_a_pipeline_that_crashes_again(ptir: Ptir) -> None:
    ran = ptir("opt", "--strict-fp", "-p", "cse,fixpoint(cse,dce),canonicalize", STEPS)
    assert ran.out == b"" and ran.err.startswith("error: internal error: IndexError: three is too few\n")
    left = reproducer(ran)
    text = left.read_text("utf-8")
    assert "// pipeline: dce\n// flags: --strict-fp\n" in text and "// version: " in text
    assert text.count("mul(") == 1, "cse has run"
    again = ptir("opt", "--run-reproducer", left)
    assert again.err.startswith("error: internal error: IndexError: three is too few\n")
    reproducer(again).unlink()
    left.unlink()


def test_reproducer_keeps_what_is_left_of_a_limit_of_steps(ptir: Ptir, monkeypatch: pytest.MonkeyPatch) -> None:
    def picky(program: Program, context: PassContext) -> None:
        steps = 0
        while steps < 9 and context.step("again", program.main.body[0]):
            steps += 1
        if steps == 2:
            raise IndexError("two are too few")

    monkeypatch.setattr(lookup("decompose", "ptir"), "run", picky)
    assert ptir("opt", "-p", "cse,decompose", STEPS).status == 0
    left = reproducer(ptir("opt", "-p", "cse,decompose", "--bisect-limit", "3", "--max-iterations", "7", STEPS))
    text = left.read_text("utf-8")
    assert "// pipeline: decompose\n// flags: --max-iterations 7 --bisect-limit 2\n" in text and text.count("mul(") == 1
    again = ptir("opt", "--run-reproducer", left)
    assert again.err.startswith("error: internal error: IndexError: two are too few\n")
    reproducer(again).unlink()
    left.unlink()


def test_reproducer_of_a_mended_pass_prints_what_the_pass_makes(
    ptir: Ptir, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(lookup("dce", "ptir"), "run", crash)
        left = reproducer(ptir("opt", "-p", "cse,dce", STEPS))
    ran = ptir("opt", "--run-reproducer", left)
    assert ran.status == 0 and ran.out == ptir("opt", "-p", "cse,dce", STEPS).out
    left.unlink()


@pytest.mark.parametrize(
    ("dialect", "file"),
    [
        ("mind", "testdata/mind/02_mlp_relu.mind.ir"),
        ("tiny", "testdata/tiny/04_gemm_no_permute.json"),
        ("ptir", "testdata/ptir/dump/d04_gpt2_block_prefill.json"),
    ],
)
def test_reproducer_is_a_program_of_its_own_format(ptir: Ptir, monkeypatch: pytest.MonkeyPatch, dialect: str, file: str) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(lookup("dce", dialect), "run", lambda program, context: [][0])
        left = reproducer(ptir("opt", "-p", "cse,dce", file))
    assert ptir("opt", "--run-reproducer", left).out == ptir("opt", "-p", "cse,dce", file).out
    left.unlink()


def test_pass_that_breaks_the_program_leaves_a_reproducer(ptir: Ptir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup("dce", "ptir"), "run", lambda program, context: program.main.body.reverse())
    left = reproducer(ptir("opt", "-p", "dce", STEPS))
    assert "PassFailure" in left.read_text("utf-8")
    left.unlink()


@pytest.mark.parametrize("flags", ["--max-iterations", "--max-iterations x", '"'])
def test_reproducer_whose_flags_were_spoilt_runs_without_them(ptir: Ptir, tmp_path: Path, flags: str) -> None:
    (tmp_path / "r.txt").write_text(f"// pipeline: cse\n// flags: {flags}\nfunc @f() -> () {{\n  return\n}}\n")
    assert ptir("opt", "--run-reproducer", tmp_path / "r.txt").status == 0


def test_another_format_is_refused_before_anything_runs(ptir: Ptir) -> None:
    ran = ptir("opt", STEPS, "--to", "mind", "--print-ir-after", "all")
    assert ran.status == 2 and ran.err.count("\n") == 1 and "ptir translate --to mind" in ran.err


def test_reproducer_is_a_file_with_a_pipeline(ptir: Ptir) -> None:
    assert ptir("opt", "--run-reproducer", "-p", "cse", STEPS).status == 2
    assert ptir("opt", "--run-reproducer", stdin=b"").status == 2


def test_bisect_finds_a_wrong_pass_by_running_programs(ptir: Ptir, monkeypatch: pytest.MonkeyPatch) -> None:
    def swapped(program: Program, context: PassContext) -> None:
        for rw in context.rewriters(program):
            for op in rw.body():
                if op.defn.short == "sub":
                    rw.replace_all_uses(op.result, rw.build(op, "add", *op.operands))

    monkeypatch.setattr(lookup("decompose", "ptir"), "run", swapped)
    ran = ptir("bisect", "-p", "cse,decompose,canonicalize", STEPS)
    assert ran.status == 1, ran.err
    assert "step 2 is guilty\n  pass     decompose\n" in ran.text and "+  %g = add(%d, %d)" in ran.text
    again = re.search(r"replay   ptir (.*)", ran.text)
    assert again and "add" in ptir(*again[1].split()).text


def test_rules_that_undo_each_other_are_named_with_the_place(ptir: Ptir, monkeypatch: pytest.MonkeyPatch) -> None:
    again = rules("forth: sub(x, y) => add(x, y)\nback: add(x, y) => sub(x, y)", DIALECT, HELPERS, splat)
    monkeypatch.setattr(lookup("canonicalize", "ptir"), "CANONICALIZATION", PatternSet(again).freeze())
    ran = ptir("opt", STEPS)
    assert ran.status == 3 and ran.out == b""
    said = rf"error\[LimitExceeded\]: \d+ rewrites reach no fixpoint: `back`, `forth` undo each other\n --> {STEPS}:5:3\n"
    assert re.match(said, ran.err)


@pytest.mark.usefixtures("crashing")
def test_bisect_finds_a_pass_that_crashes(ptir: Ptir) -> None:
    ran = ptir("bisect", "-p", "cse,dce", STEPS, "--check", "true")
    assert ran.status == 1 and "crash    dce: IndexError: three is too few" in ran.text


def test_judge_that_hangs_is_bad(ptir: Ptir) -> None:
    ran = ptir("bisect", STEPS, "--check", "sh -c 'grep -q dense $0 || sleep 9'", "--timeout", "0.5")
    assert ran.status == 1 and "pattern  add-zero" in ran.text


def test_every_limit_of_steps_is_a_prefix_of_the_log(ptir: Ptir, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    whole = ptir("opt", "--log-rewrites", log, STEPS)
    records = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    assert {"pass", "pattern", "root", "before", "after", "at"} <= set(records[0])
    for n in range(len(records) + 1):
        ran = ptir("opt", "--bisect-limit", str(n), "--log-rewrites", log, STEPS)
        assert [json.loads(line) for line in log.read_text("utf-8").splitlines()] == records[:n]
        assert (ran.out == whole.out) == (n == len(records))


def test_the_log_tells_what_is_erased_and_steps_do_not_count_it(ptir: Ptir, tmp_path: Path) -> None:
    dead = tmp_path / "dead.ptir"
    lines = ("%d = exp(%y)", "%t = tanh(%y)", "%z = select(dense<true> : tensor<i1, 3>, %x, %t)")
    body = "".join(f"  {line} -> tensor<f32, 3>\n" for line in lines)
    dead.write_text(f"func @f(%x: tensor<f32, 3>, %y: tensor<f32, 3>) -> tensor<f32, 3> {{\n{body}  return %z\n}}\n", "utf-8")
    ran = ptir("opt", dead, "--log-rewrites", "-", "-o", tmp_path / "out")
    records = [json.loads(line) for line in ran.text.splitlines()]
    assert [(r["event"], r["root"].partition(" ")[0]) for r in records] == [("erased", "%d"), ("folded", "%z"), ("erased", "%t")]
    assert all(r["at"].startswith(f"{dead}:") for r in records)
    ran = ptir("bisect", dead, "--check", "grep -q tanh")
    assert ran.err.startswith("1 step\n") and "--bisect-limit 1" in ran.text


def test_trace_has_an_event_for_every_pass_and_its_verification(ptir: Ptir, tmp_path: Path) -> None:
    assert ptir("opt", "-p", "canonicalize,fixpoint(cse)", "--trace", tmp_path / "t.json", STEPS).status == 0
    events = json.loads((tmp_path / "t.json").read_text("utf-8"))["traceEvents"]
    passes = [e for e in events if e["cat"] == "pass"]
    assert [e["name"] for e in passes] == ["canonicalize", "cse", "cse"] and len(events) == 6
    assert [e["args"]["changed"] for e in passes] == [True, True, False] and passes[1]["args"]["merged"] == 1
    ends = [e["ts"] + e["dur"] for e in events]
    assert all(e["ph"] == "X" and e["dur"] >= 0 for e in events)
    assert all(end <= later["ts"] + 1 for end, later in zip(ends, events[1:], strict=False))


def test_timing_tells_each_pass_and_what_verifying_cost(ptir: Ptir) -> None:
    told = re.findall(r"^ +[0-9.]+ ms  (\S+)$", ptir("opt", "-p", "cse,dce", "--timing", STEPS).err, re.MULTILINE)
    assert told == ["cse", "dce", "--verify-each", "total"]
    assert "--verify-each" not in ptir("opt", "-p", "cse", "--timing", "--no-verify-each", STEPS).err


def test_list_of_passes_tells_their_options(ptir: Ptir) -> None:
    listed = ptir("opt", "--list-passes").text
    assert re.search(r"^mind  canonicalize .*\[fold-floats=false\]$", listed, re.MULTILINE)
    assert re.search(r"^all   fixpoint .*\[n=4\]$", listed, re.MULTILINE)
    whole = ptir("opt", "--list-passes", "-v").text
    assert "mind canonicalize [fold-floats=false]\n    Canonical form of Core v1" in whole and len(whole) > 2 * len(listed)


def test_print_names_are_those_of_passes(ptir: Ptir) -> None:
    ran = ptir("opt", "--print-ir-after", "cze", STEPS)
    assert ran.status == 2 and "did you mean" in ran.err


def test_a_pipeline_given_twice_is_refused_not_half_forgotten(ptir: Ptir) -> None:
    for command in (("opt",), ("bisect", "--check", "true")):
        ran = ptir(*command, "-p", "cse", "-p", "dce", STEPS)
        assert ran.status == 2 and "given more than once" in ran.err


def test_several_passes_may_be_named_with_commas(ptir: Ptir) -> None:
    ran = ptir("opt", "-p", "cse,dce,cse", "--print-ir-after", "cse,dce", "--print-ir-before", "dce", STEPS)
    shown = re.findall(r"// ----- (.*)", ran.err)
    assert shown == ["after cse", "before dce", "after dce", "after cse"]


@pytest.mark.parametrize("flag", ["--trace", "--log-rewrites", "--print-ir-tree"])
def test_what_cannot_be_written_is_told_instead_of_the_program(ptir: Ptir, flag: str) -> None:
    ran = ptir("opt", flag, "/dev/full", STEPS)
    assert ran.status == 4 and ran.out == b"" and ran.err.startswith("error[IOError]: ") and ran.err.endswith(" --> /dev/full\n")


@pytest.mark.parametrize(
    ("pipeline", "said"),
    [
        ("fixpoint{n=999999999999999999}(cse)", ""),
        ("fixpoint{n=9999999999999999999}(cse)", "is too big"),
        ("fixpoint(fixpoint())", "takes passes in parentheses"),
        ("cse()", "takes no passes in parentheses"),
        ("canonicalize{max-iterations=1_0}", "needs a number"),
        ("canonicalize{max-iterations=٣}", "needs a number"),
    ],
)
def test_numbers_and_parentheses(ptir: Ptir, pipeline: str, said: str) -> None:
    ran = ptir("opt", "-p", pipeline, STEPS)
    assert ran.status == 2 * bool(said) and said in ran.err


def test_an_interrupt_while_the_judge_ends_is_an_interrupt(ptir: Ptir, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(child: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        os.waitpid(child.pid, 0)  # it has ended, and is no group any more
        child.returncode = 0
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "wait", interrupted)
    assert ptir("reduce", STEPS, "--check", "true").status == 130


def test_a_pipeline_file_of_another_system_reads_the_same(ptir: Ptir, tmp_path: Path) -> None:
    (tmp_path / "p").write_bytes(b"\xef\xbb\xbfcse # merges\r\n\r\ndce\r\n")
    assert ptir("opt", "-p", f"@{tmp_path}/p", STEPS).out == ptir("opt", "-p", "cse,dce", STEPS).out
    (tmp_path / "p").write_bytes(b"cse\r\nxyz\r\n")
    assert ptir("opt", "-p", f"@{tmp_path}/p", STEPS).err.endswith(" (line 2)\n  xyz\n  ^^^\n")


@pytest.mark.parametrize("passes", ["canonicalize", "licm,sink,cse", "decompose,elementwise-fusion"])
@pytest.mark.parametrize("path", ["testdata/opt/default.ptir", "testdata/opt/licm.ptir", "testdata/plan/softmax.ptir"])
def test_the_log_tells_values_apart_that_have_no_name_yet(ptir: Ptir, tmp_path: Path, passes: str, path: str) -> None:
    log = ptir("opt", "-p", passes, path, "--log-rewrites", "-", "-o", tmp_path / "out").text
    texts = [text for r in map(json.loads, log.splitlines()) for text in (r["root"] or "", *(r["after"] or ()))]
    assert not [text for text in texts if re.search(r"%(?![\w.$~])", text)]
    unnamed = {int(n) for text in texts for n in re.findall(r"%~([0-9]+)", text)}
    assert unnamed == set(range(len(unnamed)))


def test_the_log_tells_what_is_returned_instead(ptir: Ptir, tmp_path: Path) -> None:
    head = "func @f(%x: tensor<si32, 2>) -> tensor<si32, 2> {\n"
    body = "".join(f"  %{y} = neg(%{x}) -> tensor<si32, 2>\n" for x, y in ("xy", "yz"))
    ran = ptir("opt", "--log-rewrites", "-", "-o", tmp_path / "out", stdin=f"{head}{body}  return %z\n}}\n".encode())
    first = json.loads(ran.text.splitlines()[0])
    assert first["event"] == "folded" and first["after"] == ["return %x"]
