"""Random networks: they are valid, engines fuse every kind of their layers, and a share of their campaign finds nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools.core.choices import Seeded
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import F32
from ptir_tools.core.ir import Op, operand_type
from ptir_tools.core.verify import verify
from ptir_tools.dialects.ptir import networks
from ptir_tools.engines import RunOptions, native, run, thresholds
from ptir_tools.engines.inputs import random_inputs
from ptir_tools.engines.native import fusion
from ptir_tools.tools import fuzz
from ptir_tools.tools.fuzz import Campaign, campaign
from tests.conftest import run_line

SHARE = 50_000  # the first seed of the ordinary tests
needs_native = pytest.mark.skipif(not native.available(), reason="needs the native engine")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that can fork")


def made(seed: int) -> Program:
    program, diagnostics = networks.generate(Seeded(seed)), Diagnostics()
    assert verify(program, diagnostics), (seed, [d.message for d in diagnostics])
    return program


def test_networks_are_valid_and_the_same_for_a_seed() -> None:
    for seed in range(60):
        text = ptir.write(made(seed))
        assert text == ptir.write(made(seed)) == ptir.write(ptir.read(text)), seed


def of_step(ops: Sequence[Op]) -> Iterator[str]:
    """What a step of the native engine does, by the ops that it fuses."""
    names = [op.defn.short for op in ops]
    dots = [op for op in ops if op.defn.short == "dot_general"]
    patches = [op for op in ops if op.defn.short == "extract_patches"]
    tail = [op for op in ops if fusion.role(op) in ("map", "reduce")]
    if not dots:
        yield from names if len(ops) == 1 else ["a group", *["a group with a reduction"] * any("reduce" in n for n in names)]
        return
    dtype = operand_type(dots[0].operands[0]).dtype  # type: ignore[union-attr]
    if patches and len(dots) == 1:
        yield from of_convolution(patches[0], dots[0], tail)
    elif patches:
        yield "bands"
    elif len(dots) == 2:
        yield "attention" + ("" if dtype is F32 else " of 16 bits")
        yield from ["attention with a mask of constants"] * ("compare_le" in names or "compare_gt" in names)
        yield from ["attention with a bias"] * (names[: names.index("exp")].count("add") > 0)
    elif dtype.bits == 8:
        yield from (f"bytes and {n}" for n in ("requantize", "dequantize") if n in names)
    else:
        yield from ["a product and its group"] * bool(tail)
        yield f"a product of {dtype}"


def of_convolution(patches: Op, dot: Op, tail: Sequence[Op]) -> Iterator[str]:
    groups = len(dot.attr("batch_lhs"))
    yield ("a convolution in groups" if groups else "a convolution") + (" and its group" if tail else "")
    yield f"a convolution over {len(patches.attr('window'))} axes"
    for name in ("strides", "dilation"):
        if any(n > 1 for n in patches.attr(name)):
            yield f"a convolution with {name}"
    if dot.operands[1] is patches.result:
        yield "a convolution with the weights first"


FAMILIES = {
    "a group", "a group with a reduction", "a product and its group", "a product of f32", "a product of bf16",
    "a product of f16", "a convolution", "a convolution and its group", "a convolution in groups",
    "a convolution in groups and its group", "a convolution over 1 axes", "a convolution over 2 axes",
    "a convolution with the weights first", "a convolution with strides", "a convolution with dilation", "attention",
    "attention of 16 bits", "attention with a mask of constants", "attention with a bias", "bands", "bytes and requantize",
    "bytes and dequantize", "layer_norm", "reduce_window", "argmax", "take", "quantize", "dequantize", "scan", "while",
    "cond", "concat", "pad", "cumsum",
}  # fmt: skip


@needs_native
def test_the_native_engine_fuses_every_kind_of_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it did, step by step, in at most 400 networks; bands need large images, so their threshold is lowered."""
    monkeypatch.setattr(thresholds.at, "pair", 1 << 8)
    seen = set[str]()
    for seed in range(400):
        program = made(seed)
        run(program, random_inputs(program, seed), RunOptions(timer=lambda ops, start, end: seen.update(of_step(ops))))
        if seen >= FAMILIES:
            return
    assert not FAMILIES - seen


@needs_fork
def test_a_share_of_the_campaign_finds_nothing() -> None:
    """In a process of its own, which has not chosen an instruction set yet."""
    line = [sys.executable, "-m", "ptir_tools", "fuzz", "--networks", "--seed", str(SHARE), "--count", "50", "--no-reduce"]
    ran = subprocess.run(line, capture_output=True, text=True)
    assert ran.returncode == 0 and ran.stdout.startswith("ptir: 50 cases, "), ran.stdout + ran.stderr


@needs_fork
@pytest.mark.campaign
@pytest.mark.slow
def test_the_campaign_finds_nothing() -> None:
    line = [sys.executable, "-m", "ptir_tools", "fuzz", "--networks", "--seed", "1_000_000", "--count", "2000"]
    ran = subprocess.run(line, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_instruction_set_has_its_turn() -> None:
    line = "from ptir_tools.tools import fuzz; print(*fuzz._isas())"
    ran = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == list(native.kernels().ISAS if native.available() else ())
    assert fuzz._isas() == [""] or not native.available()  # of a process that has chosen


def planted(monkeypatch: pytest.MonkeyPatch, fault: Any) -> set[tuple[str, str]]:
    """The probes and kinds of the findings in some networks when `fault(call number, results)` changes what the engine gives."""
    kept = fuzz.compiled.Compiled.__call__
    calls: dict[int, int] = {}

    def changed(self: Any, given: Any) -> dict[str, Any]:
        calls[id(self)] = calls.get(id(self), 0) + 1
        return fault(calls[id(self)], kept(self, given))

    monkeypatch.setattr(fuzz.compiled.Compiled, "__call__", changed)
    report = campaign(Campaign(("ptir",), seed=SHARE, count=8, reduce=False, networks=True))
    assert report.cases["ptir"] == 8
    return {(f.probe.split()[0], f.problem.kind) for f in report.findings}


@needs_fork
def test_a_number_that_is_off_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a thousandth of the largest element."""

    def off(call: int, found: dict[str, Any]) -> dict[str, Any]:
        first = next(n for n, x in found.items() if x.dtype.kind not in "iub")
        return found | {
            first: (found[first] + np.abs(found[first]).max() * found[first].dtype.type(1e-1)).astype(found[first].dtype)
        }

    assert ("near", "wrong-number") in planted(monkeypatch, off) or ("run", "wrong-number") in planted(monkeypatch, off)


@needs_fork
def test_a_call_that_answers_with_an_earlier_result_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    first: dict[str, Any] = {}

    def stale(call: int, found: dict[str, Any]) -> dict[str, Any]:
        if call == 3:
            first.clear()
            first.update({name: x.copy() for name, x in found.items()})
        return first if call == 4 and first.keys() == found.keys() else found

    assert ("session", "wrong-number") in planted(monkeypatch, stale)


@needs_fork
def test_a_written_case_holds_the_command_that_found_it(tmp_path: Path) -> None:
    """It ends well where there is no fault; the instruction set is in the case, too."""
    for seed in (SHARE,):
        text = "".join(fuzz._texts(fuzz.generated("ptir", seed, 6, networks=True), "ptir"))
        for probe in (*fuzz.network_probes("ptir", seed), "threads 2", "session auto", "optimized", "special auto"):
            case = Path(
                fuzz.write_case(
                    fuzz.Finding("ptir", seed, probe, fuzz.Problem("refused", "planted"), text, isa="avx2"), str(tmp_path)
                )
            )
            line = case.read_text("utf-8").partition("RUN: ")[2].partition("\n")[0]
            assert run_line(line, case, tmp_path).status == 0, line
            assert "// PTIR_ISA=avx2\n" in case.read_text("utf-8")
