"""`ptir reduce`: what comes out is interesting, verifies and cannot be made smaller by dropping an op."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ptir_tools import api
from ptir_tools.tools import check_command
from tests.conftest import Ran

Ptir = Callable[..., Ran]
SOURCES = {
    "ptir": ("testdata/models/llama.ptir", "rsqrt("),
    "ptir-dump": ("testdata/ptir/dump/d04_gpt2_block_prefill.dump.ptir", "DotGeneral("),
    "mind": ("testdata/mind/02_mlp_relu.mind.ir", "Relu ("),
    "tiny": ("testdata/tiny/04_gemm_no_permute.json", '"uop":"MUL"'),
}


@pytest.mark.parametrize("form", SOURCES)
def test_result_is_interesting_and_small(ptir: Ptir, form: str, tmp_path: Path) -> None:
    path, needle = SOURCES[form]
    ran = ptir("reduce", path, "--check", f"grep -qF '{needle}'", "-o", tmp_path / "small")
    assert ran.status == 0, ran.err
    text = (tmp_path / "small").read_text("utf-8")
    assert text.count(needle) == 1 and ran.out == b""
    program = api.read(tmp_path / "small", form)
    ops = [op for block in program.blocks() for op in block.body]
    assert sum(not op.defn.is_constant for op in ops) == 1
    assert "ops, " in ran.err and " runs: without " in ran.err


def test_same_program_and_command_give_the_same_result(ptir: Ptir) -> None:
    command = ("reduce", "testdata/ptir/dump/d07_scan_cumsum.json", "--check", "grep -q Scan")
    first, second = ptir(*command), ptir(*command)
    assert first == second and first.status == 0


def test_numbers_shrink_where_the_program_stays_sound(ptir: Ptir) -> None:
    text = b"func @f(%x: tensor<f32, 64x32>) -> tensor<f32, 64x32> {\n  %y = exp(%x) -> tensor<f32, 64x32>\n  return %y\n}\n"
    assert "tensor<f32, 1x1>" in ptir("reduce", "--check", "grep -q exp", stdin=text).text


def test_extents_shrink_where_constants_are_lists(ptir: Ptir) -> None:
    made = ptir("reduce", "testdata/mind/02_mlp_relu.mind.ir", "--check", "grep -q 'Relu ('").text
    assert "= ConstTensor {dtype=f32, shape=(1, 1), value=[[0.0]]} : tensor<f32[1, 1]>\n" in made


def test_the_value_that_matters_is_returned(ptir: Ptir) -> None:
    ran = ptir("reduce", "testdata/ptir/dump/d04_gpt2_block_prefill.dump.ptir", "--check", "grep -q Erf")
    program = api.read(ran.text, "ptir-dump")
    assert [op.defn.short for op in program.main.body] == ["constant", "erf"]
    assert program.main.results == [program.main.body[1].result]


def test_inline_constants_become_zeros(ptir: Ptir) -> None:
    add = b"add(%x, dense<[1.0, 2.0, 3.0]> : tensor<f32, 3>) -> tensor<f32, 3>"
    text = b"func @f(%x: tensor<f32, 3>) -> tensor<f32, 3> {\n  %y = " + add + b"\n  return %y\n}\n"
    made = ptir("reduce", "--check", "grep -q 'add(%x, dense'", stdin=text).text
    assert "add(%x, dense<[0.0]> : tensor<f32, 1>)" in made


def test_interrupted_it_prints_the_smallest_so_far(ptir: Ptir, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    check = check_command.CheckCommand.__call__

    def interrupted(self: check_command.CheckCommand, text: str) -> bool:
        if self.runs == 3:
            raise KeyboardInterrupt
        return check(self, text)

    monkeypatch.setattr(check_command.CheckCommand, "__call__", interrupted)
    ran = ptir("reduce", "testdata/opt/data/steps.ptir", "--check", "grep -q mul", "-o", tmp_path / "small")
    assert ran.status == 130
    assert "mul" in (tmp_path / "small").read_text("utf-8")


@pytest.mark.parametrize(
    "command",
    [
        "grep -q mul",
        "grep -q mul {}",
        "cat {} | grep -q mul",
        "sh -c 'grep -q mul'",
        "! grep -qv mul {} && grep -q mul",
        "grep -q mul <{}",
    ],
)
def test_the_program_is_given_by_path_and_on_standard_input(command: str) -> None:
    check = check_command.CheckCommand(command, "ptir")
    assert check("mul\n") and not check("add\n")


def test_command_that_hangs_finds_nothing_interesting(ptir: Ptir) -> None:
    ran = ptir("reduce", "testdata/opt/data/steps.ptir", "--check", "sh -c 'sleep 9'", "--timeout", "0.2")
    assert ran.status == 2 and "not interesting" in ran.err


def test_processes_of_the_command_end_with_it(tmp_path: Path) -> None:
    late = tmp_path / "late"
    assert not check_command.CheckCommand(f"(sleep 0.5; touch {late}) & sleep 9", "ptir", timeout=0.1)("")
    time.sleep(0.8)
    assert not late.exists()


def test_programs_that_do_not_verify_are_tried_only_when_asked(ptir: Ptir, tmp_path: Path) -> None:
    text = "func @f(%x: tensor<f32, 3>) -> tensor<f32, 3> {\n  %a = exp(%x) -> tensor<f32, 4>\n  return %x\n}\n"
    wrong = tmp_path / "wrong.ptir"
    wrong.write_text(text, "utf-8")
    assert ptir("reduce", wrong, "--check", "true").status == 1
    ran = ptir("reduce", wrong, "--check", "grep -q 'exp.*f32, 4'", "--allow-invalid")
    assert ran.status == 0 and "exp" in ran.text
