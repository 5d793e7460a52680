"""Tuples as values: operands, carries and results of control flow, nested ones too, on every engine, after every pass, through
every serialization. Numbers are NumPy's, or those that the reference gives for the random programs that it is compared with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools.core.arrays import numpy_dtype
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program, clone
from ptir_tools.core.verify import verify
from ptir_tools.dialects import load_format
from ptir_tools.dialects.ptir.check import missing_payloads
from ptir_tools.dialects.ptir.rewrites.control import CONTROL
from ptir_tools.engines import RunOptions, run
from ptir_tools.engines.compare import check
from ptir_tools.engines.inputs import random_inputs, signature
from ptir_tools.passes import PassContext, measured, names, run_pipeline
from ptir_tools.rewrite.driver import GreedyConfig, apply_patterns_and_fold_greedily
from ptir_tools.rewrite.pattern_set import PatternSet
from ptir_tools.rewrite.rewriter import Rewriter
from tests.conftest import run_ptir
from tests.passes.cases import WITH_FILES
from tests.ptir.programs import regions
from tests.ptir.texts import clean, write

ENGINES = ("reference", "numpy", "native")
FORMATS = ("ptir", "ptir-json", "ptir-dump")
PASSES = [name for name in names("ptir") if name not in WITH_FILES]

BEST = "(tensor<f32, 2>, tensor<si32, 2>)"
TOP = f"""
  %t = top_k(%x) k[2] -> {BEST}
  %u = top_k(%x) k[2] largest[false] -> {BEST}"""
X = np.array([3.0, -1.0, 7.0, 5.0], np.float32)
HIGH, LOW = (
    (np.array([7, 5], np.float32), np.array([2, 3], np.int32)),
    (np.array([-1, 3], np.float32), np.array([1, 0], np.int32)),
)

# (name, a program whose parameters are %p: i1 or %n: si32, and %x; what else is given; the outputs)
PROGRAMS = [
    (
        "a cond that returns one tuple, which its region makes",
        f"""program @main {{
func @main(%p: tensor<i1>, %x: tensor<f32, 4>) -> tensor<f32, 2> {{
  %w = cond(%p, %x) true_region[^high] false_region[^low] -> {BEST}
  return %w[0]
}}
region ^high(%x: tensor<f32, 4>) -> ({BEST}) {{
  %t = top_k(%x) k[2] -> {BEST}
  return %t
}}
region ^low(%x: tensor<f32, 4>) -> ({BEST}) {{
  %t = top_k(%x) k[2] largest[false] -> {BEST}
  return %t
}}
}}""",
        {"p": np.bool_(False)},
        [LOW[0]],
    ),
    (
        "a cond that returns one of two tuples that it is given, whole",
        f"""program @main {{
func @main(%p: tensor<i1>, %x: tensor<f32, 4>) -> ({BEST}) {{{TOP}
  %w = cond(%p, %t, %u) true_region[^first] false_region[^second] -> {BEST}
  return %w
}}
region ^first(%t: {BEST}, %u: {BEST}) -> ({BEST}) {{
  return %t
}}
region ^second(%t: {BEST}, %u: {BEST}) -> ({BEST}) {{
  return %u
}}
}}""",
        {"p": np.bool_(True)},
        [*HIGH],
    ),
    (
        "a region that both branches share returns a tuple of tuples",
        f"""program @main {{
func @main(%p: tensor<i1>, %x: tensor<f32, 4>) -> (tensor<f32, 2>, tensor<si32, 2>, tensor<f32, 4>) {{{TOP}
  %w = cond(%p, %t, %u) true_region[^pair] false_region[^pair] -> ({BEST}, {BEST})
  %z = cond(%p, %x, %w[0], %w[1]) true_region[^third] false_region[^first] -> ({BEST}, tensor<f32, 4>)
  %o = cond(%p, %z) true_region[^open] false_region[^open] -> (tensor<f32, 2>, tensor<si32, 2>, tensor<f32, 4>)
  %k = cond(%p, %z[0]) true_region[^keep] false_region[^keep] -> {BEST}
  return %o[0], %k[1], %o[2]
}}
region ^pair(%t: {BEST}, %u: {BEST}) -> ({BEST}, {BEST}) {{
  return %t, %u
}}
region ^first(%x: tensor<f32, 4>, %t: {BEST}, %u: {BEST}) -> ({BEST}, tensor<f32, 4>) {{
  return %t, %x
}}
region ^third(%x: tensor<f32, 4>, %t: {BEST}, %u: {BEST}) -> ({BEST}, tensor<f32, 4>) {{
  return %u, %x
}}
region ^keep(%t: {BEST}) -> ({BEST}) {{
  return %t
}}
region ^open(%z: ({BEST}, tensor<f32, 4>)) -> (tensor<f32, 2>, tensor<si32, 2>, tensor<f32, 4>) {{
  %t = cond(dense<true> : tensor<i1>, %z[0]) true_region[^keep] false_region[^keep] -> {BEST}
  return %t[0], %t[1], %z[1]
}}
}}""",
        {"p": np.bool_(True)},
        [*LOW, X],
    ),
    (
        "a while that carries one tuple",
        f"""program @main {{
func @main(%x: tensor<f32, 4>) -> ({BEST}) {{
  %t = top_k(%x) k[2] -> {BEST}
  %w = while(%t) cond_region[^test] body_region[^half] -> {BEST}
  return %w
}}
region ^test(%t: {BEST}) -> (tensor<i1>, {BEST}) {{
  %m = reduce_max(%t[0]) axes[0] -> tensor<f32>
  %f = compare_gt(%m, dense<3.0> : tensor<f32>) -> tensor<i1>
  return %f, %t
}}
region ^half(%t: {BEST}) -> ({BEST}) {{
  %h = mul(%t[0], dense<0.5> : tensor<f32, 2>) -> tensor<f32, 2>
  %p = constant() value[dense<true>] -> tensor<i1>
  %n = cond(%p, %h, %t[1]) true_region[^pair] false_region[^pair] -> {BEST}
  return %n
}}
region ^pair(%a: tensor<f32, 2>, %b: tensor<si32, 2>) -> (tensor<f32, 2>, tensor<si32, 2>) {{
  return %a, %b
}}
}}""",
        {},
        [HIGH[0] / 4, HIGH[1]],
    ),
    (
        "a scan whose only carry is a tuple, and one that stacks what it carries of it",
        f"""program @main {{
func @main(%x: tensor<f32, 4>) -> (tensor<f32, 2>, tensor<f32, 2>, tensor<f32, 4x2>) {{{TOP}
  %w = scan(%t, %x) body_region[^add] carry_count[1] scan_output_count[0] -> {BEST}
  %s = scan(%u, %x) body_region[^out] carry_count[1] scan_output_count[1] -> ({BEST}, tensor<f32, 4x2>)
  %k = cond(dense<true> : tensor<i1>, %s[0]) true_region[^keep] false_region[^keep] -> {BEST}
  return %w[0], %k[0], %s[1]
}}
region ^add(%t: {BEST}, %s: tensor<f32>) -> ({BEST}) {{
  %b = broadcast_to(%s) result_shape[2] -> tensor<f32, 2>
  %c = add(%t[0], %b) -> tensor<f32, 2>
  %p = constant() value[dense<true>] -> tensor<i1>
  %n = cond(%p, %c, %t[1]) true_region[^pair] false_region[^pair] -> {BEST}
  return %n
}}
region ^out(%t: {BEST}, %s: tensor<f32>) -> ({BEST}, tensor<f32, 2>) {{
  return %t, %t[0]
}}
region ^keep(%t: {BEST}) -> ({BEST}) {{
  return %t
}}
region ^pair(%a: tensor<f32, 2>, %b: tensor<si32, 2>) -> (tensor<f32, 2>, tensor<si32, 2>) {{
  return %a, %b
}}
}}""",
        {},
        [HIGH[0] + 14, LOW[0], np.tile(LOW[0], (4, 1))],
    ),
    (
        "what a scan stacks of a carry is read through constant indices; a region of symbolic extents never runs",
        """program @main {
func @main(%c: tensor<f32, 3>, %x: tensor<f32, 4>) -> (tensor<f32, 2x3>, tensor<f32, 4x3>) {
  %s = scan(%c, %x) carry_count[1] scan_output_count[1] body_region[^r] -> (tensor<f32, 3>, tensor<f32, 4x3>)
  %i = constant() value[dense<[[1, 2, 1], [2, 3, 1]]>] -> tensor<si64, 2x3>
  %y = gather(%s[1], %i) axis[0] -> tensor<f32, 2x3>
  %j = constant() value[dense<3>] -> tensor<si64, 4x3>
  %z = scatter_reduce(%s[1], %j, %s[1]) axis[0] reduce[max] -> tensor<f32, 4x3>
  return %y, %z
}
region ^r(%a: tensor<f32, 3>, %b: tensor<f32>) -> (tensor<f32, 3>, tensor<f32, 3>) {
  return %a, %a
}
region ^orphan(%p: tensor<f32, 0x?N>) -> tensor<f32, 0x?N> {
  %y = neg(%p) -> tensor<f32, 0x?N>
  return %y
}
}""",
        {"c": np.arange(3, dtype=np.float32)},
        [np.tile(np.arange(3, dtype=np.float32), (2, 1)), np.tile(np.arange(3, dtype=np.float32), (4, 1))],
    ),
]


def outputs(program: Program, inputs: dict[str, np.ndarray], engine: str) -> list[np.ndarray]:
    given = [inputs[k] for k in inputs]
    return list(run(program, given, RunOptions(engine=engine)).values())


@pytest.mark.parametrize(("name", "text", "more", "wanted"), PROGRAMS, ids=[p[0] for p in PROGRAMS])
def test_programs_of_tuples(name: str, text: str, more: dict[str, np.ndarray], wanted: list[np.ndarray]) -> None:
    program = clean(text)
    inputs = {p.name: {"x": X, **more}[p.name] for p in signature(program)}

    def right(made: Program, engine: str) -> None:
        found = outputs(made, inputs, engine)
        assert len(found) == len(wanted)
        for have, want in zip(found, wanted, strict=True):
            assert have.dtype == want.dtype and have.shape == want.shape and (have == want).all(), (engine, have, want)

    for engine in ENGINES:
        right(program, engine)
    assert len(random_inputs(program, 0)) == len(inputs)
    for pipeline in (*PASSES, "canonicalize,cse,dce,licm,sink,simplify-regions,canonicalize"):
        after = clone(program)
        run_pipeline(after, pipeline, PassContext(expensive_checks=True))
        right(after, "reference")
    if any("?" in str(p.type) for block in program.regions for p in block.params):
        return
    literals = "dense<true> : tensor<i1>, " in text or "dense<3.0>" in text
    for form in FORMATS:
        if not (literals and form == "ptir-dump"):  # gpt.rs's dump leaves out inline payloads
            written = write(program, form)
            back = clean(written, form)
            assert write(back, form) == written
            right(back, "numpy")


@pytest.mark.parametrize(
    "seed", [*range(8), *(pytest.param(s, marks=[pytest.mark.slow, pytest.mark.campaign]) for s in range(8, 120))]
)
def test_random_programs_of_tuples(seed: int) -> None:
    program = regions(seed)
    assert verify(program, Diagnostics())
    inputs = random_inputs(program, seed)
    for engine in ENGINES[1:]:
        assert not check(program, clone(program), runs=1, options=RunOptions(engine=engine)).diverged, engine
    for name in PASSES:
        after = clone(program)
        run_pipeline(after, name, PassContext(expensive_checks=True))
        if not measured(name, "ptir"):  # computes with less precision
            assert not check(program, after, runs=1).diverged, name
    text = write(program)
    again = clean(text)
    assert write(again) == text
    want = outputs(program, inputs, "reference")
    for form in FORMATS:
        refused = Diagnostics()
        written = "".join(load_format(form).write(again, refused, Options()))  # type: ignore[misc]
        if refused.errors:  # gpt.rs has not all ops
            assert form != "ptir"
            continue
        back = clean(written, form)
        assert write(back, form) == written
        if missing_payloads(back, Diagnostics()):  # a dump has no large literals
            continue
        for have, expected in zip(outputs(back, inputs, "reference"), want, strict=True):
            assert (have.dtype, have.shape, have.tobytes()) == (expected.dtype, expected.shape, expected.tobytes()), form


@pytest.mark.parametrize("engine", [*ENGINES, None])
def test_unaligned_inputs_are_taken(engine: str | None) -> None:
    program = ptir.read(
        "func @f(%x: tensor<f32, 2x4>) -> tensor<f32, 2x4> {\n  %y = neg(%x) -> tensor<f32, 2x4>\n  return %y\n}\n"
    )
    x = np.zeros(33, np.uint8)[1:].view(np.float32).reshape(2, 4)
    x[:] = np.arange(8).reshape(2, 4)
    assert not x.flags.aligned
    options = {} if engine is None else {"engine": engine}
    np.testing.assert_array_equal(ptir.run(program, [x], **options)["y"], -np.arange(8, dtype=np.float32).reshape(2, 4))


@pytest.mark.parametrize("target", ["mind", "tiny", "pto"])
def test_elements_of_tuples_are_refused_or_translated_and_never_crash(target: str) -> None:
    text = """func @f(%x: tensor<si32, 3>) -> tensor<si32, 2> {
  %t = top_k(%x) k[2] -> (tensor<si32, 2>, tensor<si32, 2>)
  %y = div(%t[0], dense<2> : tensor<si32, 2>) -> tensor<si32, 2>
  return %y
}
"""
    ran = run_ptir("translate", "--to", target, "--check", stdin=text.encode())
    assert ran.status == 0 if target == "pto" else ran.status == 1 and "top_k" in ran.err
    text = """func @f(%t: (tensor<f32, 4>, tensor<f32, 4>)) -> ((tensor<f32, 4>, tensor<f32, 4>), tensor<f32, 4>) {
  %z = neg(%t[0]) -> tensor<f32, 4>
  return %t, %z
}
"""
    ran = run_ptir("translate", "--to", target, stdin=text.encode())
    assert ran.status == 1 and "NotTranslatable" in ran.err


def test_tiny_chooses_between_tuples_element_by_element() -> None:
    pair = "(tensor<f32, 2>, tensor<f32>)"
    text = f"""program @main {{
func @main(%p: tensor<i1>, %x: tensor<f32, 2>, %y: tensor<f32>) -> (tensor<f32>, tensor<f32>) {{
  %t = cond(%p, %x, %y) true_region[^pair] false_region[^minus] -> {pair}
  %w = cond(%p, %t, %y) true_region[^keep] false_region[^keep] -> ({pair}, tensor<f32>)
  %k = cond(%p, %w[0]) true_region[^whole] false_region[^whole] -> {pair}
  return %k[1], %w[1]
}}
region ^pair(%x: tensor<f32, 2>, %y: tensor<f32>) -> {pair} {{
  return %x, %y
}}
region ^minus(%x: tensor<f32, 2>, %y: tensor<f32>) -> {pair} {{
  %n = neg(%y) -> tensor<f32>
  return %x, %n
}}
region ^keep(%t: {pair}, %y: tensor<f32>) -> ({pair}, tensor<f32>) {{
  return %t, %y
}}
region ^whole(%t: {pair}) -> ({pair}) {{
  return %t
}}
}}"""
    made = ptir.translate(clean(text), "tiny")
    for p, want in ((True, 3), (False, -3)):
        found = ptir.run(made, [np.bool_(p), np.zeros(2, np.float32), np.float32(3)])
        assert [float(x) for x in found.values()] == [want, 3]


def test_constants_in_a_tuple_of_results_are_inputs_of_tiny(tmp_path: Path) -> None:
    """Of each element of the tuple that the graph gives, as of a result by itself; what is written has all of them."""
    pair = "(tensor<f32, 2>, tensor<f32, 2>)"
    text = f"""program @main (spec_version = ptir.v0.4) {{
func @main(%x: tensor<f32, 2>) -> ({pair}) {{
  %t = cond(dense<true> : tensor<i1>, %x) true_region[^a] false_region[^a] -> {pair}
  return %t
}}
region ^a(%x: tensor<f32, 2>) -> {pair} {{
  return dense<3.0> : tensor<f32, 2>, dense<[1.0, -2.0]> : tensor<f32, 2>
}}
}}"""
    ran = run_ptir("translate", "--to", "tiny", stdin=text.encode())
    assert ran.status == 1 and "a result: Tiny has no constants but immediates" in ran.err
    kept, given = tmp_path / "kept.npz", tmp_path / "given.npz"
    ran = run_ptir("translate", "--to", "tiny", "--constants", kept, stdin=text.encode())
    assert ran.status == 0
    with np.load(kept) as constants:
        np.savez(given, x=np.zeros(2, np.float32), **constants)
    made = tmp_path / "out.npz"
    assert run_ptir("run", "--inputs", given, "-o", made, stdin=ran.out).status == 0
    with np.load(made) as found:
        assert [x.tolist() for x in found.values()] == [[3, 3], [1, -2]]


TAKES_A_TUPLE = """program @main (spec_version = ptir.v0.4) {{
func @main(%s: {flag}, %x: tensor<f32, 2>) -> (tensor<f32, 2>, tensor<f32, 2>) {{
  {made}
  %t = cond(%p, %x) true_region[^a] false_region[^b] -> (tensor<f32, 2>, tensor<f32, 2>)
  %k = cond(%p, %t) true_region[^whole] false_region[^whole] -> (tensor<f32, 2>, tensor<f32, 2>)
  %u = cond(%p, %k) true_region[^c] false_region[^d] -> tensor<f32, 2>
  return %u, %k[1]
}}
region ^a(%x: tensor<f32, 2>) -> (tensor<f32, 2>, tensor<f32, 2>) {{
  return %x, %x
}}
region ^b(%x: tensor<f32, 2>) -> (tensor<f32, 2>, tensor<f32, 2>) {{
  %n = neg(%x) -> tensor<f32, 2>
  %e = add(%x, %x) -> tensor<f32, 2>
  return %n, %e
}}
region ^whole(%t: (tensor<f32, 2>, tensor<f32, 2>)) -> ((tensor<f32, 2>, tensor<f32, 2>)) {{
  return %t
}}
region ^c(%t: (tensor<f32, 2>, tensor<f32, 2>)) -> tensor<f32, 2> {{
  return %t[1]
}}
region ^d(%t: (tensor<f32, 2>, tensor<f32, 2>)) -> tensor<f32, 2> {{
  return %t[0]
}}
}}"""


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("true", [True, False])
def test_regions_of_kernels_take_and_give_whole_tuples(true: bool, known: bool) -> None:
    """PTO has no tuples: those that a region takes or gives are their elements, whether its flag is a scalar or data."""
    flag = "tensor<si32>" if known else "tensor<f32, 3>"
    of_data = "%m = reduce_max(%s) axes[0] -> tensor<f32>\n  %p = compare_gt(%m, dense<0.0> : tensor<f32>) -> tensor<i1>"
    made = "%p = compare_gt(%s, dense<0> : tensor<si32>) -> tensor<i1>" if known else of_data
    after = ptir.translate(clean(TAKES_A_TUPLE.format(flag=flag, made=made)), "pto")
    s = np.int32(2 * true - 1) if known else np.full(3, 2 * true - 1, np.float32)
    x = np.array([1, -3], np.float32)
    found = _with_memory(after, [s, x])
    for got, want in zip(found, (x, x) if true else (-x, x + x), strict=True):
        np.testing.assert_array_equal(got, want)


def _with_memory(program: Program, given: list[np.ndarray]) -> list[np.ndarray]:
    """The results of a PTO program that has memory for them after its inputs."""
    memory = [np.zeros(p.type.shape, numpy_dtype(p.type.dtype)) for p in program.main.params[len(given) :]]
    return list(run(program, [*given, *memory], RunOptions(engine="reference")).values())[-2:]


def test_a_branch_is_tried_again_when_its_tuple_is_no_longer_used_whole() -> None:
    pair = "(tensor<f32, 4>, tensor<f32, 4>)"
    text = f"""program @main {{
func @main(%x: tensor<f32, 4>) -> (tensor<f32, 4>, tensor<f32, 4>) {{
  %p = constant() value[dense<true>] -> tensor<i1>
  %one = constant() value[dense<1>] -> tensor<si32>
  %late = compare_eq(%one, %one) -> tensor<i1>
  %w = cond(%p, %x) true_region[^both] false_region[^both] -> {pair}
  %a = cond(%late, %w) true_region[^first] false_region[^second] -> tensor<f32, 4>
  return %a, %w[1]
}}
region ^both(%x: tensor<f32, 4>) -> {pair} {{
  %n = neg(%x) -> tensor<f32, 4>
  return %x, %n
}}
region ^first(%t: {pair}) -> tensor<f32, 4> {{
  return %t[0]
}}
region ^second(%t: {pair}) -> tensor<f32, 4> {{
  return %t[1]
}}
}}"""
    program = clean(text)
    with Rewriter(program.main, program.dialect) as rw:
        apply_patterns_and_fold_greedily(rw, PatternSet(CONTROL).freeze(), GreedyConfig(expensive_checks=True))
    assert [op.defn.short for op in program.main.body] == ["neg"]
