"""`ptir lit`: checks as FileCheck has them, and the lines that tests run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.source import Source
from ptir_tools.tools import filecheck
from tests.conftest import run_ptir

TEXT = "func @a\n  %0 = exp(%x)\n  %1 = add(%0,  %0)\n\n  return %1\nfunc @b\n  %0 = neg(%x)\n  return %0\n"
# Checks, and the words of the first that does not hold, with its message; nothing if all hold.
CHECKS = {
    "CHECK: exp\nCHECK: add": "",
    "CHECK: add\nCHECK: exp": "exp: this is not in the output",
    "CHECK: exp\nCHECK-NEXT: add": "",
    "CHECK: exp\nCHECK-NEXT: return": "return: found 3 lines below, and not on the next line",
    "CHECK: exp\nCHECK-NEXT: (%x)": "(%x): found on the same line, and not on the next line",
    "CHECK: exp\nCHECK-SAME: (%x)": "",
    "CHECK: exp\nCHECK-SAME: add": "add: found 1 line below, and not on the same line",
    "CHECK-NEXT: exp": "exp: CHECK-NEXT follows another check, and there is none before",
    "CHECK: add\nCHECK-EMPTY:\nCHECK-NEXT: return": "",
    "CHECK: exp\nCHECK-EMPTY:": "CHECK-EMPTY:: the next line is not empty",
    "CHECK: exp\nCHECK-NOT: neg\nCHECK: return": "",
    "CHECK: exp\nCHECK-NOT: add\nCHECK: return": "add: this is in the output",
    "CHECK-NOT: sub": "",
    "CHECK: func @b\nCHECK-NOT: neg": "neg: this is in the output",
    "CHECK-DAG: add\nCHECK-DAG: exp\nCHECK: return": "",
    "CHECK-DAG: add\nCHECK-DAG: add": "add: this is not in the output",
    "CHECK-DAG: return\nCHECK-NOT: neg\nCHECK-DAG: func @b": "",
    "CHECK-DAG: exp\nCHECK-NOT: add\nCHECK-DAG: return": "add: this is in the output",
    "CHECK-DAG: return\nCHECK-NOT: neg\nCHECK-DAG: exp": "exp: this is not in the output",
    "CHECK-LABEL: @a\nCHECK: return\nCHECK-LABEL: @b\nCHECK: neg": "",
    "CHECK-LABEL: @a\nCHECK: neg\nCHECK-LABEL: @b": "neg: this is not in the output",
    "CHECK-LABEL: @a\nCHECK-NOT: neg\nCHECK-LABEL: @b\nCHECK-NOT: exp": "",
    "CHECK-LABEL: @a\nCHECK-NOT: exp\nCHECK-LABEL: @b": "exp: this is in the output",
    "CHECK-LABEL: @a\nCHECK-LABEL: @c": "@c: this is not in the output",
    "CHECK-LABEL: func @a\nCHECK-LABEL: func @b": "",  # from the first character on
    "CHECK: func @a": "",
    "CHECK: {{%1}} = [[E:]]add": "",
    "CHECK-COUNT-2: return": "",
    "CHECK-COUNT-3: return": "return: this is not in the output",
    "CHECK: [[V:%[0-9]+]] = exp\nCHECK: add([[V]], [[V]])": "",
    "CHECK: [[V:%[0-9]+]] = add\nCHECK: neg([[V]])": "neg([[V]]): this is not in the output",
    "CHECK: add([[V:%.]], [[V]])": "",
    "CHECK: [[V]] = exp": "[[V]] = exp: no check before gives [[V]] a value",
    "CHECK: {{a|e}}xp({{%[a-z]}})": "",
    "CHECK: {{^  %1 =}} add({{.*}}){{$}}": "",
    "CHECK: add(%0, %0)\nCHECK:   return    %1": "",  # runs of blanks are equal
    "CHECK: exp(.*)": "exp(.*): this is not in the output",
    "CHECK: {{(}}": "{{(}}: this is not a regular expression",
    "CHECK: %[[@LINE]]": "",
    "CHECK: %[[#@LINE-1]]\nCHECK: %[[@LINE-1]]": "",
    "XCHECK: no\nCHECK-MORE: no\nCHECK: exp": "",
}


@pytest.mark.parametrize("checks", CHECKS)
def test_checks(checks: str) -> None:
    diagnostics = Diagnostics(source := Source("t", "".join(f"// {line}\n" for line in checks.splitlines())))
    filecheck.compare(list(filecheck.checks(source)), TEXT, diagnostics)
    found = [f"{source.text[slice(*d.span or (0, 0))]}: {d.message}" for d in diagnostics]
    assert len(found) <= 1 and "".join(found).startswith(CHECKS[checks]) and bool(found) == bool(CHECKS[checks]), found


PROGRAM = "func @f(%x: tensor<f32, 2>) -> tensor<f32, 2> {\n  %y = exp(%x) -> tensor<f32, 2>\n  return %y\n}\n"
# The comments of a test, its exit code, and what standard error says.
TESTS = {
    "// RUN: ptir verify %s": (0, "1 of 1 tests passed"),
    "// RUN: ptir opt %s | filecheck %s\n// CHECK: exp": (0, "1 of 1 tests passed"),
    "// RUN: ptir opt %s \\\n// RUN:   | filecheck %s\n// CHECK: exp": (0, "1 of 1 tests passed"),
    "// RUN: ptir opt %s | FileCheck %s --check-prefixes=A,B\n// A: exp\n// B: return": (0, "1 of 1"),
    "// RUN: ptir opt %s\n// CHECK: tanh": (1, "error[TestFailed]: this is not in the output"),
    "// RUN: ptir opt %s": (1, "standard output is not empty"),
    "// FAIL[1]: ptir verify --from mind %s 2>&1 | filecheck %s\n// CHECK: error[": (0, "1 of 1"),
    "// RUN: not ptir verify --from mind %s 2>&1 | filecheck %s\n// CHECK: error[": (0, "1 of 1"),
    "// FAIL[2]: ptir verify %s": (1, "the exit code is 0, and 2 is expected"),
    "// RUN: ptir verify %s | sh": (1, "a test runs only `ptir`"),
    "// RUN: ptir verify %s | filecheck %S/other": (1, "filecheck reads the checks of this file"),
    "// RUN: ptir verify %s | filecheck %s": (1, "the file has no line `CHECK:`"),
    "// RUN: ptir verify %s --load %s": (1, "`--load` is not for tests"),
    "// RUN: ptir reduce %s --check true": (1, "`reduce` is not for tests"),
    "// RUN: ptir opt %s -o %S/written": (1, "a test writes files only in %t"),
    "// RUN: ptir opt %s -o %t/written\n// RUN: ptir verify %t/written": (0, "1 of 1"),
    "// RUN: ptir opt %s -o %t.ptir\n// RUN: ptir verify %t.ptir": (0, "1 of 1"),
    "// RUN: ptir run %s --random 0 --dump-dir %S/written -o %t/o.npz": (1, "a test writes files only in %t"),
    "// RUN: ptir opt %s 'unclosed": (1, "No closing quotation"),
    "// RUN: ptir opt %s && ptir verify %s": (1, "`&&` is for a shell"),
    "// RUN: ptir opt %s > %t.out": (1, "`>` is for a shell"),
    "// nothing": (1, "no comment `RUN: ptir …` says what to run"),
}


@pytest.mark.parametrize("comments", TESTS)
def test_lines(comments: str, tmp_path: Path) -> None:
    path, (status, said) = tmp_path / "a.ptir", TESTS[comments]
    path.write_text(f"{comments}\n{PROGRAM}")
    ran = run_ptir("lit", path)
    assert ran.status == status and said in ran.err, ran
    assert [p.name for p in tmp_path.iterdir()] == ["a.ptir"]


def test_a_folder_is_tested_and_blessed(tmp_path: Path) -> None:
    (tmp_path / "a.ptir").write_text(f"// RUN: ptir opt %s\n// RUN: ptir fmt %s\n{PROGRAM}")
    (tmp_path / "b.ptir").write_text(f"// RUN: ptir verify %s\n{PROGRAM}")
    (tmp_path / "data.ptir").write_text(PROGRAM)
    (tmp_path / "bytes.pyc").write_bytes(b"\xa7RUN: ptir")
    assert run_ptir("lit", tmp_path).status == 1
    assert run_ptir("lit", "--bless", tmp_path).status == 0
    assert (tmp_path / "a.out").read_text() == PROGRAM
    for jobs in ("1", "2"):
        ran = run_ptir("lit", "-j", jobs, tmp_path, "--diagnostics", "junit")
        assert ran.status == 0 and ran.text.count("<testcase ") == 2 and ran.err == "2 of 2 tests passed\n"
    (tmp_path / "a.2.out").write_text("old\n")
    ran = run_ptir("lit", "-j", "2", tmp_path)
    assert ran.status == 1 and "-old" in ran.err and ran.err.endswith("1 of 2 tests passed\n")


def test_plugins_of_the_command_line_are_loaded_by_every_test(tmp_path: Path) -> None:
    lines = "// RUN: ptir opt -p number-values %s | filecheck %s\n// CHECK: %v1 = exp\n"
    (tmp_path / "a.ptir").write_text(f"{lines}{PROGRAM}")
    assert run_ptir("lit", tmp_path / "a.ptir").status == 1
    line = [sys.executable, "-m", "ptir_tools", "lit", "--load", "testdata/plugins/mine.py", tmp_path / "a.ptir"]
    assert subprocess.run(line, capture_output=True).returncode == 0


def test_a_command_that_takes_too_long(tmp_path: Path) -> None:
    (tmp_path / "a.ptir").write_text(f"// RUN: ptir verify %s\n{PROGRAM}")
    ran = run_ptir("lit", "--timeout", "0.001", tmp_path / "a.ptir")
    assert ran.status == 3 and "raise the limit with --timeout" in ran.err


def test_a_check_that_fails_shows_where_it_looked_and_what_is_like_it() -> None:
    text = "one\ntwo three\nfour\nfive\nsix\n"
    for line, begins, shown, like in (
        ("CHECK: two thre3", 1, ["1: one", "2: two three", "3: four"], "two three"),
        ("CHECK: four\nCHECK: fixe", 3, ["3: four", "4: five", "5: six"], "five"),
        ("CHECK: five\nCHECK: nothing like it", 4, ["4: five", "5: six", "6: "], None),
        ("CHECK-NOT: five", 4, ["4: five", "5: six", "6: "], None),
    ):
        found = Diagnostics()
        filecheck.compare(list(filecheck.checks(Source("f", line))), text, found)
        (error,) = found.items
        wanted = [f"the search begins at line {begins} of the output", *shown]
        assert list(error.notes) == wanted + [f"this line is similar: {like}"] * (like is not None)
