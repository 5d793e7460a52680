"""What `.ci/run` relies on: the README's commands, its list of expected skips, and that any other skip fails."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import LARGE, ROOT, costs, room_of, shared_out, unexpected

SKIPS = ROOT / ".ci" / "skips"
TEST = "import pytest\n\ndef test_one():\n    pytest.skip('no reason')\n\ndef test_two():\n    pass\n"


def test_every_expected_skip_is_one_of_a_test_that_there_is() -> None:
    lines = [line for line in SKIPS.read_text("utf-8").splitlines() if not line.startswith("#")]
    for line in lines:
        name, _, reason = line.partition("  ")
        file, _, test = name.partition("::")
        assert reason and f"def {test}" in (ROOT / file).read_text("utf-8"), line


@pytest.mark.parametrize(
    ("skipped", "left"),
    [
        ("tests/test_a.py", []),
        ("tests/test_a.py::test_x", []),
        ("tests/test_b.py::test_x[1]", []),
        ("tests/test_b.py::test_xy", ["tests/test_b.py::test_xy"]),
        ("tests/test_b.py", ["tests/test_b.py"]),
        ("tests/test_c.py::test_x", ["tests/test_c.py::test_x"]),
    ],
)
def test_a_line_stands_for_a_file_or_a_test_with_all_its_cases(skipped: str, left: list[str]) -> None:
    listed = "# why\ntests/test_a.py  needs a printer\ntests/test_b.py::test_x  needs the moon\n#tests/test_c.py  not listed\n"
    assert unexpected([skipped], listed) == left


def test_a_share_is_of_every_large_test_and_in_time_of_every_case() -> None:
    names = [*(f"t.py::large[{i}]" for i in range(100)), *(f"t.py::small[{i}]" for i in range(LARGE - 1)), "t.py::one"]
    assert shared_out(names, 1, "2026-01-01") == []
    runs = [{*names} - {*shared_out(names, 4, f"2026-01-{day:02}")} for day in range(1, 41)]
    assert all({name for name in names if "large" not in name} <= run and len(run) == len(names) - 75 for run in runs)
    assert set().union(*runs) == {*names} and runs[0] != runs[1]
    assert runs[0] == {*names} - {*shared_out(names[::-1], 4, "2026-01-01")}


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_skip_that_is_not_listed_fails_and_is_named(tmp_path: Path, workers: str) -> None:
    (tmp_path / "test_skips.py").write_text(TEST)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.conftest",
        "-p",
        "no:cacheprovider",
        "-n",
        workers,
        "--rootdir",
        str(tmp_path),
    ]
    for listed, status in ((".", 1), ("test_skips.py::test_one", 0)):
        (tmp_path / "skips").write_text(f"{listed}  reason\n")
        ran = subprocess.run(
            [*command, "--expected-skips", "skips"], cwd=tmp_path, env=_environment(), capture_output=True, text=True
        )
        assert ran.returncode == status, ran.stdout + ran.stderr
        assert ("test_skips.py::test_one: Skipped: no reason" in ran.stdout) == (status == 1)


def _environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    return kept | {"PYTHONPATH": str(ROOT)}


def test_the_two_set_up_commands_of_the_readme_are_those_that_run() -> None:
    """`.ci/run` takes the commands of the console blocks that do not begin with `ptir`."""
    commands = re.findall(r"^\$ (?!ptir )(.*)$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    assert len(commands) == 2
    assert " pip install . && ptir run testdata/" in commands[0]
    assert commands[1].startswith("pip install -e '.[test]' && python -m pytest")


def test_options_of_our_own_are_given_with_an_equals_sign() -> None:
    # After a blank, pytest takes the value for a test to run, and then does not load the file that declares the option.
    texts = [(ROOT / name).read_text("utf-8") for name in (".ci/run", "docs/testing.md", "README.md")]
    assert not [m for text in texts for m in re.findall(r"--(?:expected-skips|share|day) ", text)]
    assert "--expected-skips=" in texts[0]


@pytest.mark.parametrize(
    ("name", "room"),
    [
        ("tests/test_ci.py::test_it[a/test_b]", "tests"),
        ("tests/pto/test_run.py::test_it", "pto"),
        ("tests/engines/native/test_tiles.py::test_it[1/2]", "engines/native"),
    ],
)
def test_the_room_of_a_test(name: str, room: str) -> None:
    assert room_of(name) == room


def test_costs_are_added_up_by_room() -> None:
    def report(name: str, took: float) -> pytest.TestReport:
        return pytest.TestReport(name, (name, 0, name), {}, "passed", None, "teardown", user_properties=[("processor", took)])

    names = ("tests/pto/test_a.py::test_x", "tests/pto/test_b.py::test_x", "tests/test_ci.py::test_x")
    assert costs(report(name, 1.5) for name in names) == {"pto": (2, 3.0), "tests": (1, 1.5)}


def test_a_sanitizer_refuses_an_extension_that_it_did_not_build(tmp_path: Path) -> None:
    native = pytest.importorskip("ptir_tools._native")
    options = [
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "tests.sanitize",
        "tests/test_ci.py::test_every_expected_skip_is_one_of_a_test_that_there_is",
    ]
    env = {**os.environ, "PTIR_SANITIZED": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0 and f"would run {native.__file__}" in done.stdout + done.stderr
