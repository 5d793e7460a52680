"""What gpt.rs's own optimizer makes of the samples: the same here where it is right, and where it is not, what we do and why."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program, clone
from ptir_tools.core.evaluate import Context, run_block
from ptir_tools.core.source import Source
from ptir_tools.core.verify import verify
from ptir_tools.dialects import load_format
from ptir_tools.dialects.ptir import DIALECT
from ptir_tools.dialects.ptir.rewrites.canonicalization import CANONICALIZATION
from ptir_tools.passes import Floats, PassContext, run_pipeline
from ptir_tools.rewrite.driver import apply_patterns_and_fold_greedily
from ptir_tools.rewrite.pattern_set import PatternSet
from ptir_tools.rewrite.rewriter import Rewriter
from ptir_tools.rewrite.step_log import fingerprint
from tests.conftest import TESTDATA
from tests.rewrite.programs import agree, outputs, sample
from tests.rewrite.test_rules import read, write

GOLDEN = TESTDATA / "ptir" / "golden"
SAMPLES = {"d": TESTDATA / "ptir" / "dump", "f": TESTDATA / "ptir" / "func"}
# The patterns of gpt.rs's passes beyond the identities, to which ops fold by declaration.
PASSES = {
    "broadcast": ("broadcast-chain",),
    "reshape": ("reshape-chain",),
    "transpose": ("transpose-chain",),
    "slice": ("slice-chain",),
    "cast": (),
    "ew": ("add-zero", "sub-zero", "mul-one", "div-one"),
}


def dump(text: str) -> Program:
    """A program in gpt.rs's dump form; a first line `// …` is the optimizer's statistics."""
    found = Diagnostics(Source("golden", text.partition("\n")[2] if text.startswith("//") else text))
    program = load_format("ptir-dump").read(found.source, found, Options())
    assert program is not None and verify(program, found), [d.message for d in found]
    return program


def golden(name: str) -> Program:
    return dump((GOLDEN / name).read_text("utf-8"))


def input_of(name: str) -> Program:
    """The sample whose name begins like that of the golden file."""
    (path,) = SAMPLES[name[0]].glob(f"{name.partition('.')[0]}*.dump.ptir")
    return dump(path.read_text("utf-8"))


def shape(program: Program) -> object:
    """Equal for programs that are the same but for names."""
    return fingerprint(Rewriter(program.main, program.dialect))


def optimized(name: str) -> Program:
    program = input_of(name)
    run_pipeline(program, DIALECT.pipeline)
    return program


def same_numbers(a: Program, b: Program) -> bool:
    """Whether both give the same on ordinary numbers."""
    rng = random.Random(0)
    given = [np.nan_to_num(sample(rng, p.type), posinf=3, neginf=-3) for p in a.main.params]
    if any(a.dtype.kind in "iu" for a in given):
        given = [np.abs(a) % 3 if a.dtype.kind in "iu" else a for a in given]
    found, wanted = (run_block(p.main, given[: len(p.main.params)], Context()) for p in (a, b))
    return all(agree(x, y, False, True) for x, y in zip(found, wanted, strict=True))


@pytest.mark.parametrize("name", PASSES)
def test_single_passes(name: str) -> None:
    program = input_of("d22")
    patterns = PatternSet([p for p in CANONICALIZATION.patterns if p.name in PASSES[name]]).freeze()
    with Rewriter(program.main, program.dialect) as rw:
        apply_patterns_and_fold_greedily(rw, patterns)
    wanted = golden(f"d22.pass_{name}.txt")
    run_pipeline(wanted, "fold,dce")  # each of those passes of gpt.rs ends with dead-code elimination
    assert shape(program) == shape(wanted)


def test_cse():
    program = input_of("d22")
    run_pipeline(program, "cse")
    assert shape(program) == shape(golden("d22.pass_cse.txt"))


@pytest.mark.parametrize("name", ["d02_layer_norm_decomposed", "d10_topk_tuple_gather"])
def test_where_there_is_nothing_to_do_nothing_is_done(name: str) -> None:
    assert shape(optimized(name)) == shape(golden(f"{name}.opt.txt"))


@pytest.mark.parametrize(
    ("name", "theirs", "ours"),
    [
        ("d03_attention_canonical", 23, 22),  # a transposed operand is read through the dimension numbers
        ("d04_gpt2_block_prefill", 96, 93),  # so are the transposes of the heads
        ("f08", 3, 3),
    ],
)
def test_where_more_can_be_done(name: str, theirs: int, ours: int) -> None:
    upstream, found = golden(f"{name}.opt.txt"), optimized(name)
    assert (len(upstream.main.body), len(found.main.body)) == (theirs, ours)
    assert same_numbers(found, upstream)


def test_elementwise_ops_come_before_the_broadcast():
    assert [op.defn.short for op in golden("f08.opt.txt").main.body] == ["broadcast_to", "exp", "mul"]
    assert [op.defn.short for op in optimized("f08").main.body] == ["exp", "mul", "broadcast_to"]


def test_dce_keeps_the_signature():
    """gpt.rs drops a parameter that no one reads, and with it what callers pass; here only who asks."""
    for name in ("d22.pass_dce.txt", "d22_optimizable_chain.opt.txt"):
        assert len(golden(name).main.params) == 1
    program = input_of("d22")
    run_pipeline(program, "dce")
    assert len(program.main.params) == 2
    run_pipeline(program, "dce{parameters=true}")
    assert shape(program) == shape(golden("d22.pass_dce.txt"))


TIMES_ZERO = """func @f(%x: tensor<f32, 2>) -> tensor<f32, 2> {
  %k = constant() value[dense<0.0>] -> tensor<f32, 2>
  %y = mul(%x, %k) -> tensor<f32, 2>
  return %y
}
"""
BRANCHES = """program @f (spec_version = ptir.v0.4) {
  func @f(%p: tensor<i1>, %x: tensor<f32, 3>) -> tensor<f32, 3> {
    %y = cond(%p, %x) true_region[^up] false_region[^keep] -> tensor<f32, 3>
    %d = cond(%p, %x) true_region[^keep] false_region[^up] -> tensor<f32, 3>
    return %y
  }
  region ^up(%a: tensor<f32, 3>) -> tensor<f32, 3> {
    %n = neg(%a) -> tensor<f32, 3>
    %m = neg(%n) -> tensor<f32, 3>
    %e = exp(%m) -> tensor<f32, 3>
    return %e
  }
  region ^keep(%a: tensor<f32, 3>) -> tensor<f32, 3> {
    return %a
  }
}
"""


@pytest.mark.parametrize(("floats", "left"), [(Floats.STRICT, 2), (Floats.DEFAULT, 2), (Floats.FAST, 1)])
def test_a_product_with_zero_keeps_nan_and_infinity(floats: Floats, left: int) -> None:
    """gpt.rs makes 0 of `x * 0`, which is NaN for an infinity, and -0.0 for what is negative."""
    program = read(TIMES_ZERO)
    run_pipeline(program, DIALECT.pipeline, PassContext(floats=floats))
    assert len(program.main.body) == left


def test_regions_are_optimized_and_dead_control_flow_goes():
    """gpt.rs never looks into a region, and takes loops and scatters for effects."""
    program = read(BRANCHES)
    before = clone(program)
    run_pipeline(program, DIALECT.pipeline)
    assert [len(b.body) for b in (*program.functions, *program.regions)] == [1, 1, 0], write(program)
    assert all(agree(x, y, True, False) for x, y in zip(outputs(before, 1), outputs(program, 1), strict=True))


def test_the_order_does_not_depend_on_where_the_driver_begins():
    """gpt.rs begins anew after each rewrite; here the work list goes on, with the same end."""
    program = input_of("d22")
    run_pipeline(program, DIALECT.pipeline)
    assert [op.defn.short for op in program.main.body] == ["slice", "exp", "add"]
    upstream = golden("d22_optimizable_chain.opt.txt")
    run_pipeline(upstream, DIALECT.pipeline)
    program.main.params.pop()
    assert shape(program) == shape(upstream)


def test_all_golden_files_are_read() -> None:
    names = {p.name for p in Path(GOLDEN).glob("*.txt")} - {"d22.pass_fuse.txt"}  # fusion has its own tests
    assert len(names) == 14 and all(golden(n).main.body for n in names)
