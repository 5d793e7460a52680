"""What a command line says reaches the function that does the work, and what it does not say is the default.

Each row is a command line up to one function, whose arguments are looked at; then one more option at a time, and which of them
it changes: that one alone.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ptir_tools.core.diagnostics import UsageError
from ptir_tools.core.limits import LIMITS
from ptir_tools.core.records import fields
from ptir_tools.engines.compare import Tolerance
from ptir_tools.rewrite.context import Floats
from tests.conftest import run_ptir

OK = "testdata/verify/ok.ptir"


class Row(NamedTuple):
    """A function that a command calls (`file:name` below `ptir_tools/cli`), a line, the facts of its arguments by default, and
    for each further option what it makes different."""

    of: str
    line: str
    default: dict[str, Any]
    options: dict[str, dict[str, Any]]


CHECKED = {"runs": 3, "finite": False, "strict": False, "engine": "reference"}
ROWS = {
    "run: the engine": Row(
        "run:run",
        f"run {OK} --random 0",
        {
            "options.engine": "auto",
            "options.function": None,
            "options.seed": 0,
            "options.threads": 0,
            "options.strict_fp": False,
            "options.order": "sequential",
            "options.undef": "error",
            "options.timeout": None,
            "options.trace": None,
            "options.observe": None,
            "options.timer": None,
            "options.sharding": None,
            "options.hosts": None,
            "options.poison": False,
            "options.bindings": {},
        },
        {
            "--engine numpy": {"options.engine": "numpy"},
            "--function f": {"options.function": "f"},
            "--seed 3": {"options.seed": 3},
            "--threads 2": {"options.threads": 2},
            "--strict-fp": {"options.strict_fp": True},
            "--order random": {"options.order": "random"},
            "--undef zero": {"options.undef": "zero"},
            "--timeout 9": {"options.timeout": 9.0},
            "--check-memory": {"options.poison": True},
            "--bind N=3": {"options.bindings": {"N": 3}},
        },
    ),
    "run: the inputs": Row(
        "run:Inputs",
        f"run {OK}",
        {
            "given": (),
            "files": (),
            "random": None,
            "cast": False,
            "function": None,
            "bindings": {},
            "shapes": {},
            "special": False,
            "weights": (),
        },
        {
            "--input x=1 --input y=@z.npy": {"given": (("x", "1"), ("y", "@z.npy"))},
            "--weights a.npz --weights b.safetensors": {"weights": ("a.npz", "b.safetensors")},
            "--random 4": {"random": 4},
            "--cast-inputs": {"cast": True},
            "--function f": {"function": "f"},
            "--special": {"special": True},
            "--bind N=3": {"bindings": {"N": 3}},
            "--seed 4": {},
        },
    ),
    "opt: the passes": Row(
        "opt:run_pipeline",
        f"opt {OK}",
        {
            "pipeline": "canonicalize,cse,dce",
            "context.verify_each": True,
            "context.expensive_checks": False,
            "context.step_limit": None,
            "context.floats": Floats.DEFAULT,
            "context.max_iterations": None,
            "context.log": None,
        },
        {
            "-p cse": {"pipeline": "cse"},
            "--no-verify-each": {"context.verify_each": False},
            "--verify-each": {},
            "--expensive-checks": {"context.expensive_checks": True},
            "--bisect-limit 4": {"context.step_limit": 4},
            "--bisect-limit 0": {"context.step_limit": 0},
            "--strict-fp": {"context.floats": Floats.STRICT},
            "--fast-math": {"context.floats": Floats.FAST},
            "--max-iterations 7": {"context.max_iterations": 7},
            f"--max-iterations {LIMITS.iterations}": {},
        },
    ),
    "opt: the check": Row(
        "checking:check",
        f"opt --check {OK}",
        {**CHECKED, "known": {}, "option": "--check", "mixed": False, "within": None, "execute": None, "peer": ""},
        {
            "--check-runs 5": {"runs": 5},
            "--strict-fp": {"strict": True},
            "--fast-math": {"finite": True},
            "--engine numpy": {"engine": "numpy"},
        },
    ),
    "translate: the check": Row(
        "checking:check",
        f"translate --to mind --check {OK}",
        {**CHECKED, "peer": "", "execute": None, "mixed": False, "within": None},
        {"--check-runs 5": {"runs": 5}, "--lossy": {"finite": True}},
    ),
    "diff: the check": Row(
        "checking:check",
        f"diff --run {OK} {OK}",
        {**CHECKED, "option": "--run", "mixed": True, "within": None},
        {
            "--check-runs 5": {"runs": 5},
            "--rtol 0.5": {"within": Tolerance(0.0, 0.5)},
            "--atol 0.25": {"within": Tolerance(0.25, 0.0)},
            "--atol 0": {"within": Tolerance(0.0, 0.0)},
            "--atol 0.25 --rtol 0.5": {"within": Tolerance(0.25, 0.5)},
        },
    ),
    "diff: two files of values": Row(
        "diff:values.of_files",
        "diff a.npz b.npz",
        {"path": "a.npz", "other": "b.npz", "within": Tolerance(1e-6, 1e-5)},
        {"--rtol 0.5": {"within": Tolerance(0.0, 0.5)}, "--atol 0.5": {"within": Tolerance(0.5, 0.0)}},
    ),
    "diff: a program and a file": Row(
        "diff:values.with_file",
        f"diff {OK} b.npz",
        {"path": "b.npz", "within": None, "first": True, "options.bindings": {}},
        {"--bind N=3": {"options.bindings": {"N": 3}}, "--atol 1": {"within": Tolerance(1.0, 0.0)}},
    ),
    "diff: a file and a program": Row("diff:values.with_file", f"diff b.npz {OK}", {"path": "b.npz", "first": False}, {}),
    "bisect: the steps": Row(
        "bisect:runs_as_before",
        f"bisect {OK}",
        {"runs": 3, "finite": False, "engine": "reference", "options.bindings": {}},
        {
            "--check-runs 5": {"runs": 5},
            "--fast-math": {"finite": True},
            "--engine numpy": {"engine": "numpy"},
            "--bind N=3": {"options.bindings": {"N": 3}},
        },
    ),
    "bisect: the pipeline": Row(
        "bisect:bisect",
        f"bisect {OK} --check true",
        {"pipeline": "canonicalize,cse,dce", "context().floats": Floats.DEFAULT},
        {
            "-p cse": {"pipeline": "cse"},
            "--strict-fp": {"context().floats": Floats.STRICT},
            "--fast-math": {"context().floats": Floats.FAST},
        },
    ),
    "bisect: the command": Row(
        "bisect:CheckCommand",
        f"bisect {OK} --check true",
        {"command": "true", "form": "ptir", "timeout": None},
        {"--timeout 4": {"timeout": 4.0}},
    ),
    "reduce: the command": Row(
        "reduce:CheckCommand",
        f"reduce {OK} --check true",
        {"command": "true", "form": "ptir", "timeout": None},
        {"--timeout 4": {"timeout": 4.0}},
    ),
    "reduce: the program": Row(
        "reduce:reduced",
        f"reduce {OK} --check true",
        {"bindings": {}, "allow_invalid": False},
        {"--allow-invalid": {"allow_invalid": True}, "--bind N=3": {"bindings": {"N": 3}}},
    ),
    "plan: a program": Row(
        "plan:plan",
        f"plan {OK}",
        {"align": 64, "method.algorithm": "auto", "method.seconds": 10.0, "method.limit": 0, "sharding": None},
        {
            "--align 16": {"align": 16},
            "--algorithm exact": {"method.algorithm": "exact"},
            "--time-limit 2": {"method.seconds": 2.0},
            "--limit 4K": {"method.limit": 4096},
        },
    ),
    "plan: intervals": Row(
        "plan:plan_intervals",
        "plan --from csv {tmp}/x.csv",
        {"align": 1, "method.algorithm": "auto", "method.seconds": 10.0, "method.limit": 0},
        {"--align 16": {"align": 16}, "--algorithm greedy": {"method.algorithm": "greedy"}, "--limit 9": {"method.limit": 9}},
    ),
    "bench: the measurement": Row(
        "bench:bench.measure",
        f"bench {OK}",
        {
            "options.engine": "auto",
            "options.threads": 0,
            "options.strict_fp": False,
            "min_time": 0.5,
            "runs": None,
        },
        {
            "--engine numpy": {"options.engine": "numpy"},
            "--threads 2": {"options.threads": 2},
            "--strict-fp": {"options.strict_fp": True},
            "--min-time 0": {"min_time": 0.0},
            "--runs 9": {"runs": 9},
        },
    ),
    "bench: the inputs": Row(
        "bench:Inputs",
        f"bench {OK}",
        {"given": (), "files": (), "random": 0, "cast": False, "bindings": {}},
        {"--random 4": {"random": 4}, "--bind N=3": {"bindings": {"N": 3}}},
    ),
    "fuzz": Row(
        "fuzz:Campaign",
        "fuzz --ir tiny",
        {
            "irs": ("tiny",),
            "seed": 0,
            "count": None,
            "minutes": None,
            "steps": 12,
            "folder": None,
            "reduce": True,
            "networks": False,
        },
        {
            "--ir ptir --ir tiny": {"irs": ("tiny", "ptir")},
            "--seed 3": {"seed": 3},
            "--count 9": {"count": 9},
            "--minutes 2": {"minutes": 2.0},
            "--steps 5": {"steps": 5},
            "-o x": {"folder": "x"},
            "--no-reduce": {"reduce": False},
            "--networks": {"networks": True},
        },
    ),
    "conform: a command": Row(
        "conform:conform.Command",
        "conform mind testdata/conformance/mind --command x",
        {"command": "x", "ir": "mind", "timeout": None},
        {"--timeout 3": {"timeout": 3.0}},
    ),
    "conform: this toolkit": Row(
        "conform:conform.Ours",
        "conform tiny testdata/conformance/tiny",
        {"ir": "tiny", "engine": "auto"},
        {"--engine numpy": {"engine": "numpy"}},
    ),
    "lit: gpt.rs's fixtures": Row(
        "lit:lit.run",
        "lit --gptrs testdata/rules",
        {"pipeline": None, "writes": False},
        {"-p cse": {"pipeline": "cse"}, "--allow-writes": {"writes": True}},
    ),
    "graph": Row("graph:graph.draw", f"graph {OK}", {"folded": True}, {"--all": {"folded": False}, "--to svg": {}}),
}


class Seen(UsageError):
    """Ends a command line at the function that is looked at."""


@pytest.fixture(autouse=True)
def _no_poison(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("PTIR_POISON", raising=False)
    yield


def arguments(of: str, line: str) -> dict[str, Any]:
    """The arguments with which a command line calls a function, by name, defaults filled in."""
    file, _, path = of.partition(":")
    owner: Any = importlib.import_module(f"ptir_tools.cli.{file}")
    *parts, name = path.split(".")
    for part in parts:
        owner = getattr(owner, part)
    function = getattr(owner, name)
    seen: list[dict[str, Any]] = []

    def spy(*given: Any, **named: Any) -> Any:
        if isinstance(function, type) and hasattr(function, "__record_fields__"):
            made = function(*given, **named)
            seen.append({f.name: getattr(made, f.name) for f in fields(function)})
        else:
            bound = inspect.signature(function).bind(*given, **named)
            bound.apply_defaults()
            seen.append(bound.arguments)
        raise Seen("seen")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, spy)
        ran = run_ptir(*line.split())
    assert seen, ran
    return seen[0]


def fact(given: dict[str, Any], path: str) -> Any:
    """What a path names in the arguments."""
    first, *rest = path.split(".")
    found = given[first.removesuffix("()")]
    for name in ["()"] * first.endswith("()") + rest:
        found = found() if name == "()" else getattr(found, name)
    return found


@pytest.mark.parametrize("name", ROWS)
def test_an_option_changes_what_it_names_and_nothing_else(name: str, tmp_path: Path) -> None:
    row = ROWS[name]
    (tmp_path / "x.csv").write_text("id,lower,upper,size\na,0,1,4\n")
    for words, changed in {"": {}, **row.options}.items():
        given = arguments(row.of, f"{row.line} {words}".replace("{tmp}", str(tmp_path)))
        found = {path: fact(given, path) for path in row.default}
        assert found == {**row.default, **changed}, words
