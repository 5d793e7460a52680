"""The bounded share of fuzzing, and that a campaign finds what is planted, survives what kills a case and repeats itself."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptir_tools import api, engines
from ptir_tools.core.dialect import Program
from ptir_tools.engines import RunOptions, run
from ptir_tools.engines import numpy as numpy_engine
from ptir_tools.tools import fuzz
from ptir_tools.tools.fuzz import Campaign, Finding, Problem, campaign
from ptir_tools.tools.isolation import Announce, Died, isolated
from tests.conftest import Ran, run_line
from tests.fuzz.harness import fuzz as broken
from tests.fuzz.oracle import judged

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that can fork")
Ptir = Callable[..., Ran]


@pytest.mark.parametrize("ir", fuzz.generators())
def test_a_share_of_the_campaign_finds_nothing(ir: str) -> None:
    report = campaign(Campaign((ir,), seed=20_000, count=50, oracle=judged if ir == "ptir" else None, reduce=False))
    assert report.cases[ir] == 50 and report.probes[ir] > 50 * 5
    assert not report.findings, "\n".join(map(str, report.findings))


def test_findings_with_one_cause_are_kept_once_and_counted() -> None:
    """Names and numbers of a message do not matter, nor under which circumstances a program ran."""

    def finding(
        ir: str = "ptir", seed: int = 1, probe: str = "near 3", kind: str = "hang", message: str = "at %12", place: str = ""
    ) -> Finding:
        return Finding(ir, seed, probe, Problem(kind, message, place), "")

    report, first = fuzz.Report(), finding()
    same = [finding(seed=2, message="at %7x3"), finding(probe="poison"), finding(probe="threads 2", message="at ^r5")]
    others = [
        finding(ir="tiny"), finding(kind="memory"), finding(message="by %12"), finding(probe="fmt"), finding(place="step 1"),
        finding(place="step 2"),
    ]  # fmt: skip
    for one in (first, *same, *others, *same):
        fuzz._note(report, Campaign(), one)
    assert report.findings == [first, *others]
    assert sorted(report.often.values()) == [1] * len(others) + [1 + 2 * len(same)]
    assert report.of("tiny") == 1 and report.of("ptir") == 2 * len(same) + len(others) and report.of("mind") == 0


SHARES = [("readers", 1500), ("commands", 600), ("models", 300), ("clients", 20), ("artifacts", 12)]


@pytest.mark.parametrize(("what", "count"), SHARES)
def test_a_share_of_broken_programs_finds_nothing(what: str, count: int) -> None:
    pytest.importorskip({"models": "onnx", "clients": "pygls", "artifacts": "jaxlib"}.get(what, "pytest"))
    found = broken(what, 7_000_000, count)
    assert found.inputs == count and not found.faults, found.faults


def test_the_same_seed_gives_the_same_cases() -> None:
    texts = [["".join(fuzz._texts(fuzz.generated("ptir", seed), "ptir")) for seed in range(3)] for _ in range(2)]
    assert texts[0] == texts[1] and len(set(texts[0])) == 3
    assert list(fuzz.probes("ptir", 5)) == list(fuzz.probes("ptir", 5)) != list(fuzz.probes("ptir", 6))


@pytest.mark.parametrize("ir", fuzz.generators())
def test_no_probe_changes_the_program_of_its_case(ir: str) -> None:
    for seed in range(16):
        text = "".join(fuzz._texts(fuzz.generated(ir, seed), ir))
        program = fuzz._program(text, ir)
        assert program is not None
        before = "".join(fuzz._texts(program, ir))
        for probe in fuzz.probes(ir, seed):
            fuzz.tried_on(text, ir, probe)
            assert fuzz._program(text, ir) is program and "".join(fuzz._texts(program, ir)) == before, (seed, probe)


def plant(monkeypatch: pytest.MonkeyPatch, fault: Callable[[Program], None]) -> None:
    """Let the pass `inference`, which no engine runs, do `fault` to programs that have a `tanh`."""
    from ptir_tools.passes.ptir import inference

    plain = inference.run

    def planted(program: Program, context: Any) -> None:
        plain(program, context)
        if any(op.defn.short == "tanh" for op in program.main.body):
            fault(program)

    monkeypatch.setattr(inference, "run", planted)


def wrong(program: Program) -> None:
    """The first `tanh` reads its operand's place twice: an operand in place of its result."""
    op = next(op for op in program.main.body if op.defn.short == "tanh")
    x = op.operands[0]
    program.main.annotations.clear()
    for other in program.main.body:
        other.operands = tuple(x if y is op.result else y for y in other.operands)
    program.main.results = [x if y is op.result else y for y in program.main.results]


def raises(program: Program) -> None:
    """What no one expects."""
    raise IndexError("planted")


def dies(program: Program) -> None:
    """As a fault in C does, without the trace that pytest prints of one."""
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(("fault", "kind"), [(wrong, "wrong-number"), (raises, "internal"), (dies, "signal")])
def test_what_is_planted_is_found_reduced_and_written(
    fault: Callable[[Program], None], kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plant(monkeypatch, fault)
    monkeypatch.setattr(fuzz, "_REDUCING", 10.0)
    monkeypatch.setattr(fuzz, "_FAULTY", 1 << 30)  # a program that fails has no numbers that could be wrong
    monkeypatch.setattr(fuzz, "probes", lambda ir, seed: iter(["verify", "opt inference"]))
    report = campaign(Campaign(("ptir",), seed=1, count=60, folder=str(tmp_path)))
    assert {f.problem.kind for f in report.findings} == {kind} and report.cases["ptir"] == 60
    found = report.findings[0]
    body = api.read(found.text, "ptir").main.body
    left = [op.defn.short for op in body if not op.defn.is_constant]
    assert left[0] == "tanh" and len(left) <= 2
    case = Path(found.path).read_text("utf-8")
    assert case.startswith("// RUN: ptir opt --check -p inference %s\n") and case.endswith(found.text)


@pytest.mark.parametrize(
    ("probe", "op", "kind"), [("special numpy", "maximum", "wrong-number"), ("strict numpy", "add", "wrong-number")]
)
def test_a_fault_of_a_special_value_or_of_one_bit_is_found(
    probe: str, op: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`maximum` that loses a NaN; `add` that is off by one unit in the last place, which is right except with --strict-fp."""
    kept, ran = fuzz.compiled.Compiled.__call__, []

    def planted(self: Any, given: Any) -> dict[str, Any]:
        ran.append(1)
        found = kept(self, given)
        changed = {"maximum": lambda x: np.nan_to_num(x, nan=3.0), "add": lambda x: np.nextafter(x, np.float32(9))}[op]
        return {name: changed(x) for name, x in found.items()}

    monkeypatch.setattr(fuzz.compiled.Compiled, "__call__", planted)
    t = "tensor<f32, 40>"
    text = f"func @f(%x: {t}, %y: {t}) -> {t} {{\n  %z = {op}(%x, %y) -> {t}\n  return %z\n}}\n"
    assert fuzz.tried_on(text, "ptir", "run numpy") is None and ran
    problem = fuzz.tried_on(text, "ptir", probe)
    assert problem is not None and problem.kind == kind


@pytest.mark.parametrize("ir", fuzz.generators())
def test_a_written_case_holds_the_command_that_found_it(ir: str, tmp_path: Path) -> None:
    """Of a program without a fault every command of its probes ends well; sizes of symbols are in it."""
    lines = set()
    for seed in range(3, 13):
        program = fuzz.generated(ir, seed)
        text = "".join(fuzz._texts(program, ir))
        for probe in fuzz.probes(ir, seed):
            found = fuzz.Finding(ir, seed, probe, fuzz.Problem("refused", "planted"), text)
            case = Path(fuzz.write_case(found, str(tmp_path)))
            line = case.read_text("utf-8").partition("RUN: ")[2].partition("\n")[0]
            lines.add(line)
            if fuzz.tried_on(text, ir, f"run {fuzz.run_options.ORDERS[-1] if ir == 'pto' else 'numpy'}") is None:
                ran = run_line(line, case, tmp_path)
                assert ran.status in (0, 1) and "Traceback" not in ran.err, (line, ran)
    said = "\n".join(lines)
    assert "ptir run --random 0 --special --" in said or "--bind" in said
    for option in (
        "ptir opt --check -p",
        "ptir opt --check --expensive-checks -p",
        "ptir fmt",
        "ptir translate --to",
        "--special",
    ):
        assert option in said


def test_a_translation_that_loses_an_error_is_found() -> None:
    """An index out of bounds that MIND stops at; a divisor of 0 is what another IR may take."""
    outside = api.read("%0 = Input {name=x} : tensor<f32[2, 3]>\n%1 = Index (%0) {indices=[0, 3]}\noutputs: %1\n", "mind")
    x = "%x: tensor<f32, 2x3>"
    runs = api.read(f"func @f({x}) -> tensor<f32, 2x3> {{\n  %y = neg(%x) -> tensor<f32, 2x3>\n  return %y\n}}\n", "ptir")
    found = fuzz._agree(outside, runs)
    assert found is not None and found.kind == "refused" and found.message.startswith("before: E6001: ")
    t = "tensor<si32>"
    text = f"func @f(%x: {t}) -> {t} {{\n  %z = sub(%x, %x) -> {t}\n  %y = rem(%x, %z) -> {t}\n  return %y\n}}\n"
    to_tiny = fuzz._translated(api.read(text, "ptir"), "tiny", {})
    assert to_tiny is not None and fuzz._agree(api.read(text, "ptir"), to_tiny) is None


def test_a_written_case_fails_as_the_finding_did(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`maximum` that loses a NaN: only the inputs of `--special` show it, through the command as well."""
    kept = engines.execute

    def planted(executable: Any, *rest: Any) -> dict[str, Any]:
        found = kept(executable, *rest)
        return {n: np.nan_to_num(x, nan=3.0) if isinstance(executable, numpy_engine.Executable) else x for n, x in found.items()}

    t = "tensor<f32, 40x?N>"
    text = f"func @f(%x: {t}, %y: {t}) -> {t} {{\n  %z = maximum(%x, %y) -> {t}\n  return %z\n}}\n"
    found = fuzz.Finding("ptir", 0, "special numpy", fuzz.Problem("wrong-number", "planted"), text)
    case = Path(fuzz.write_case(found, str(tmp_path)))
    line = case.read_text("utf-8").partition("RUN: ")[2].partition("\n")[0]
    assert line == "ptir run --random 0 --bind N=2 --special --engine numpy --compare reference %s"
    assert run_line(line, case, tmp_path).status == 0
    monkeypatch.setattr(engines, "execute", planted)
    assert run_line(line, case, tmp_path).status == 1 and run_line(line.replace(" --special", ""), case, tmp_path).status == 0


def test_an_oracle_judges_the_reference(tmp_path: Path) -> None:
    def never(program: Program, given: Mapping[str, Any]) -> str | None:
        return "no" if len(program.main.body) > 1 else None

    report = campaign(Campaign(("ptir",), count=8, oracle=never, reduce=False))
    assert {f.probe for f in report.findings} == {"oracle"}


def test_the_evaluator_of_the_tests_can_say_no() -> None:
    program = api.read("func @f(%x: tensor<f32, 3>) -> tensor<f32, 3> {\n  %y = exp(%x) -> tensor<f32, 3>\n  return %y\n}\n")
    given = {"x": np.array([0.0, 1.0, -2.0], np.float32)}
    assert judged(program, given) is None

    def off(program: Program, given: Any, options: RunOptions) -> dict[str, Any]:
        assert options.observe is not None

        def observe(op: Any, results: tuple[Any, ...]) -> None:
            options.observe(op, tuple(r + np.float32(1e-6) for r in results))  # type: ignore[misc]

        return run(program, given, RunOptions(engine="reference", observe=observe))

    assert judged(program, given, off)


@pytest.mark.parametrize("ending", ["hang", "wait", "memory", "signal", "exit"])
def test_what_ends_a_child_is_reported(ending: str) -> None:
    def work(announce: Announce) -> Iterator[int]:
        announce("first")
        yield 1
        announce("second")
        if ending == "hang":
            while True:
                pass
        elif ending == "wait":
            time.sleep(60)
        elif ending == "memory":
            np.ones(1 << 28)
        elif ending == "signal":
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            os._exit(3)
        yield 2

    one, died = isolated(work, seconds=0.2, memory=1 << 28)
    assert one == 1 and isinstance(died, Died)
    assert died.during == "second" and died.kind == {"exit": "signal", "wait": "hang"}.get(ending, ending)


def test_cases_leave_no_memory_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    def kept_by_a_cycle(text: str, ir: str, probe: str, oracle: object = None) -> None:
        cycle: list[object] = [np.ones(1 << 24)]  # 128 MiB
        cycle.append(cycle)

    monkeypatch.setattr(fuzz, "tried_on", kept_by_a_cycle)
    monkeypatch.setattr(fuzz, "probes", lambda ir, seed: ["verify"])
    seldom = gc.get_threshold()
    gc.set_threshold(1_000_000)
    try:
        assert not campaign(Campaign(("mind",), count=10, reduce=False)).findings
    finally:
        gc.set_threshold(*seldom)


def test_command(ptir: Ptir, tmp_path: Path) -> None:
    ran = ptir("fuzz", "--count", "2", "--ir", "tiny", "-o", tmp_path / "found")
    assert (
        ran.status == 0 and ran.err == "" and ran.text.startswith("tiny: 2 cases, ") and not list((tmp_path / "found").iterdir())
    )
