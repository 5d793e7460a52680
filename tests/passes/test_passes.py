"""The passes cse, dce, fold, decompose and raise-contractions."""

from __future__ import annotations

from time import perf_counter

import numpy as np
import pytest

from ptir_tools.core import arrays
from ptir_tools.core.dialect import Program, clone
from ptir_tools.core.evaluate import Context, run_block
from ptir_tools.core.limits import Limits
from ptir_tools.passes import Floats, PassContext, names, run_pipeline
from tests.passes.cases import WITH_FILES
from tests.passes.test_layout import CASES as LAYOUT
from tests.passes.test_layout import text as layout_text
from tests.rewrite.programs import grow
from tests.rewrite.test_rules import read, write


def after(text: str, pipeline: str, **context: object) -> str:
    """The text of a program after a pipeline."""
    program = read(text)
    run_pipeline(program, pipeline, PassContext(**context))  # type: ignore[arg-type]
    return write(program)


def shorts(program: Program) -> list[str]:
    return [op.defn.short for op in program.main.body]


def body(text: str, pipeline: str, **context: object) -> list[str]:
    """The short names of the ops of the function after a pipeline."""
    program = read(text)
    run_pipeline(program, pipeline, PassContext(**context))  # type: ignore[arg-type]
    return shorts(program)


def f(*lines: str, params: str = "%x: tensor<f32, 2x3>, %y: tensor<f32, 2x3>", ret: str = "tensor<f32, 2x3>") -> str:
    return f"func @f({params}) -> {ret} {{\n" + "\n".join(f"  {line}" for line in lines) + "\n}\n"


# ---- cse


def test_cse_merges_commuted_operands_but_not_under_strict_floats():
    text = f("%a = add(%x, %y) -> tensor<f32, 2x3>", "%b = add(%y, %x) -> tensor<f32, 2x3>",
             "%c = mul(%a, %b) -> tensor<f32, 2x3>", "return %c")  # fmt: skip
    assert body(text, "cse") == ["add", "mul"]
    assert body(text, "cse", floats=Floats.STRICT) == ["add", "add", "mul"]


def test_cse_tells_constants_apart_by_bits():
    def two(a: str, b: str) -> str:
        return f(constant(a, name="%a"), constant(b, name="%b"), "%c = mul(%a, %b) -> tensor<f32, 2x3>", "return %c")

    assert body(two("0.0", "-0.0"), "cse") == ["constant", "constant", "mul"]
    assert body(two("nan", "nan"), "cse") == ["constant", "mul"]
    assert body(two("?", "?"), "cse") == ["constant", "constant", "mul"]


REGIONS = """program @f (spec_version = ptir.v0.4) {
  func @f(%p: tensor<i1>, %x: tensor<f32, 3>) -> (tensor<f32, 3>, tensor<f32, 3>) {
    %a = cond(%p, %x) true_region[^r0] false_region[^r1] -> tensor<f32, 3>
    %b = cond(%p, %x) true_region[^r0] false_region[^r1] -> tensor<f32, 3>
    return %a, %b
  }
  region ^r0(%a: tensor<f32, 3>) -> tensor<f32, 3> {
    %e = BODY -> tensor<f32, 3>
    %d = exp(%a) -> tensor<f32, 3>
    return %e
  }
  region ^r1(%a: tensor<f32, 3>) -> tensor<f32, 3> {
    return %a
  }
  region ^unused(%a: tensor<f32, 3>) -> tensor<f32, 3> {
    return %a
  }
}
"""


def test_cse_merges_branches_that_draw_no_random_numbers():
    assert body(REGIONS.replace("BODY", "exp(%a)"), "cse") == ["cond"]
    assert body(REGIONS.replace("BODY", "rng_uniform()"), "cse") == ["cond", "cond"]


def test_random_ops_keep_their_streams_and_are_never_merged():
    text = f("%a = rng_uniform() -> tensor<f32, 2x3>", "%b = rng_uniform() -> tensor<f32, 2x3>",
             "%c = rng_uniform() -> tensor<f32, 2x3>", "%d = sub(%b, %c) -> tensor<f32, 2x3>", "return %d")  # fmt: skip
    found = after(text, "canonicalize,cse,dce")
    assert "stream[1]" in found and "stream[2]" in found and "stream[0]" not in found


def test_streams_are_ordinals_of_the_whole_text():
    program = read("""program @f (spec_version = ptir.v0.4) {
  func @g() -> tensor<f32, 2> {
    %u = rng_uniform() -> tensor<f32, 2>
    return %u
  }
  func @f() -> tensor<f32, 2> {
    %dead = rng_uniform() -> tensor<f32, 2>
    %u = rng_uniform() -> tensor<f32, 2>
    return %u
  }
}
""")
    (want,) = run_block(program.main, [], Context(streams=program.streams()))
    run_pipeline(program, "dce")
    assert [op.attr("stream") for op in program.main.body] == [2]
    (got,) = run_block(program.main, [], Context())
    assert np.array_equal(want, got)


# ---- dce


def test_dce_drops_dead_chains_dead_regions_and_dead_loops_but_no_parameter():
    program = read(REGIONS.replace("BODY", "neg(%a)"))
    run_pipeline(program, "dce")
    assert [r.name for r in program.regions] == ["r0", "r1"] and len(program.regions[0].body) == 1
    text = f("%a = neg(%x) -> tensor<f32, 2x3>", "%b = exp(%a) -> tensor<f32, 2x3>", "return %x")
    assert after(text, "dce") == f("return %x")


def test_dce_drops_parameters_for_who_asks_unless_they_alone_tell_an_extent():
    params = "%a: tensor<f32, ?N>, %x: tensor<f32, 2x3>, %b: tensor<f32, ?Nx?M>, %c: tensor<f32, ?M>, %y: tensor<f32, 4>"
    text = f("return %x", params=params)
    assert after(text, "dce") == text
    kept = "%a: tensor<f32, ?N>, %x: tensor<f32, 2x3>, %b: tensor<f32, ?Nx?M>"
    assert after(text, "dce{parameters=true}") == f("return %x", params=kept)


def test_hint_whose_values_go_is_dropped_and_noted():
    text = f("%a = neg(%x) -> tensor<f32, 2x3>", "%b = exp(%a) -> tensor<f32, 2x3>", "return %x",
             "hint 0 ElementwiseDag Required inputs[%x] exports[%b] attrs[{}] {", "  %a = neg(%x) -> tensor<f32, 2x3>",
             "  %b = exp(%a) -> tensor<f32, 2x3>", "}")  # fmt: skip
    program, context = read(text), PassContext()
    run_pipeline(program, "dce", context)
    assert program.main.annotations == []
    assert [(d.severity, d.code) for d in context.diagnostics] == [("warning", "HintDropped")]


# ---- fold


def constant(value: str, t: str = "tensor<f32, 2x3>", name: str = "%k") -> str:
    return f"{name} = constant() value[dense<{value}>] -> {t}"


def test_fold_computes_by_the_declared_meaning():
    si8 = "tensor<si8, 2>"
    text = f(constant("[127, -128]", si8), constant("[1, -1]", si8, "%l"), f"%s = add(%k, %l) -> {si8}", "return %s", ret=si8)
    assert "dense<[-128, 127]>" in after(text, "fold")
    f16 = "tensor<f16>"
    text = f(constant("1.0", f16), constant("3.0", f16, "%l"), f"%s = div(%k, %l) -> {f16}", "return %s", ret=f16)
    program = read(text)
    run_pipeline(program, "fold")
    (value,) = (op.attr("value") for op in program.main.body)
    assert arrays.from_literal(value) == np.float16(1 / 3)


@pytest.mark.parametrize(
    "line",
    [
        "%r = rng_uniform() -> tensor<f32, 2x3>",
        "%r = stop_gradient(%k) -> tensor<f32, 2x3>",
        "%r = broadcast_to(%s) result_shape[2, 3] -> tensor<f32, 2x3>",
        "%r = add(%m, %k) -> tensor<f32, 2x3>",
        "%r = iota() axis[1] -> tensor<f32, 2x3>",
    ],
)
def test_fold_leaves_alone(line: str) -> None:
    text = f(constant("1.5"), constant("2.5", "tensor<f32>", "%s"), constant("?", name="%m"), line, "return %r")
    assert line.split(" = ")[1].partition("(")[0] in body(text, "fold")


def test_fold_leaves_what_would_fail_at_run_time():
    t = "tensor<si32, 2>"
    text = f(constant("[1, 2]", t), constant("[1, 5]", t, "%i"), f"%r = add(%k, %i) -> {t}",
             f"%g = take(%x, %r) -> {t}", "return %g", params="%x: tensor<si32, 7>", ret=t)  # fmt: skip
    assert body(text, "fold") == ["constant", "constant", "add", "take"]
    assert body(text.replace("si32, 7", "si32, 8"), "fold") == ["constant", "take"]
    text = f(constant("[1, 2]", t), constant("[1, 0]", t, "%i"), constant("[0, 0]", t, "%z"), f"%m = mul(%i, %z) -> {t}",
             f"%r = div(%k, %m) -> {t}", "return %r", ret=t)  # fmt: skip
    assert body(text, "fold")[-1] == "div"


def test_fold_never_makes_a_constant_bigger_than_the_limit():
    outer = "%o = dot_general(%k, %k) contract_lhs[] contract_rhs[] -> tensor<f32, 3x3>"
    text = f(constant("[1.0, 2.0, 3.0]", "tensor<f32, 3>"), outer, "return %o", ret="tensor<f32, 3x3>")
    assert body(text, "fold") == ["constant"]
    assert body(text, "fold", limits=Limits(fold_bytes=35)) == ["constant", "dot_general"]


# ---- decompose


@pytest.mark.parametrize(("dtype", "close"), [("f32", 2e-6), ("f64", 1e-12), ("bf16", 1e-2)])
@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_decomposed_layer_norm_has_the_same_numbers(dtype: str, close: float, axis: int) -> None:
    n = (4, 5, 6)[axis]
    t, v = f"tensor<{dtype}, 4x5x6>", f"tensor<{dtype}, {n}>"
    text = f(f"%y = layer_norm(%x, %g, %b) epsilon[0.001] feature_axis[{axis}] -> {t}", f"%z = clamp(%y, %l, %x) -> {t}",
             "return %z", params=f"%x: {t}, %g: {v}, %b: {v}, %l: {t}", ret=t)  # fmt: skip
    before = read(text)
    program = clone(before)
    run_pipeline(program, "decompose,canonicalize,cse,dce")
    assert not {"layer_norm", "clamp"} & set(shorts(program))
    rng = np.random.default_rng(n)
    inputs = [rng.normal(size=p.type.static_shape).astype(arrays.numpy_dtype(p.type.dtype)) for p in before.main.params]
    (want,), (got,) = (run_block(p.main, inputs, Context()) for p in (before, program))
    assert np.allclose(arrays.widen(want), arrays.widen(got), rtol=close, atol=close)


def test_decomposed_layer_norm_of_a_symbolic_extent():
    t = "tensor<f32, 2x?N>"
    text = f(f"%y = layer_norm(%x, %g, %g) epsilon[0.001] -> {t}", "return %y", params=f"%x: {t}, %g: tensor<f32, ?N>", ret=t)
    assert "div" in body(text, "decompose")


# ---- raise-contractions


def test_equal_regions_are_merged_and_unused_ones_go():
    text = REGIONS.replace("BODY", "exp(%a)").replace("    return %e", "    return %d").replace(
        "  region ^r1(%a: tensor<f32, 3>) -> tensor<f32, 3> {\n    return %a",
        "  region ^r1(%b: tensor<f32, 3>) -> tensor<f32, 3> {\n    %c = exp(%b) -> tensor<f32, 3>\n    return %c",
    )  # fmt: skip
    program = read(text)
    run_pipeline(program, "dce,simplify-regions")
    assert [r.name for r in program.regions] == ["r0"]
    assert {r.name for op in program.main.body for r in op.regions} == {"r0"}
    run_pipeline(program, "canonicalize,cse,dce")
    assert shorts(program) == ["exp"] and program.regions == []


def test_regions_that_draw_are_not_merged():
    drawing = "%u = rng_uniform() -> tensor<f32, 3>\n    return %a"
    program = read(REGIONS.replace("BODY", "rng_uniform()").replace("    return %a", f"    {drawing}"))
    run_pipeline(program, "simplify-regions")
    assert [r.name for r in program.regions] == ["r0", "r1"]


def test_inference_drops_what_only_training_needs():
    text = f("%s = stop_gradient(%x) -> tensor<f32, 2x3>", "%t = stop_gradient(%s) -> tensor<f32, 2x3>", "return %t")
    assert body(text, "canonicalize,cse,dce") == ["stop_gradient", "stop_gradient"]
    assert body(text, "inference") == []


def test_inline_hints_drops_the_hints_and_keeps_the_ops():
    neg = "%a = neg(%x) -> tensor<f32, 2x3>"
    hint = "hint 0 ElementwiseDag Required inputs[%x] exports[%a] attrs[{}] {"
    text = f(neg, "return %a", hint, f"  {neg}", "}")
    program = read(text)
    run_pipeline(program, "inline-hints")
    assert program.main.annotations == [] and shorts(program) == ["neg"]


# ---- gpt.rs's own examples


def test_the_seed_example_ends_as_three_ops_on_the_small_tensor():
    text = f("%c0 = cast(%x) -> tensor<f32, 3>", "%b0 = broadcast_to(%c0) shape[1, 3] -> tensor<f32, 1x3>",
             "%b1 = broadcast_to(%b0) shape[2, 3] -> tensor<f32, 2x3>", "%b2 = broadcast_to(%b1) shape[2, 3] -> tensor<f32, 2x3>",
             "%e0 = exp(%b2) -> tensor<f32, 2x3>", "%e1 = exp(%b2) -> tensor<f32, 2x3>", "%dead = neg(%e1) -> tensor<f32, 2x3>",
             "%y = mul(%e0, %e1) -> tensor<f32, 2x3>", "return %y", params="%x: tensor<f32, 3>")  # fmt: skip
    assert body(text, "canonicalize,cse,dce") == ["exp", "mul", "broadcast_to"]


def test_a_branch_that_its_region_makes_simple_is_inlined_in_one_run():
    text = """program @main (spec_version = ptir.v0.4) {
  func @main(%x: tensor<si32>) -> tensor<si32> {
    %p = constant() value[dense<true>] -> tensor<i1>
    %y = cond(%p, %x) true_region[^outer] false_region[^outer] -> tensor<si32>
    return %y
  }
  region ^outer(%a: tensor<si32>) -> tensor<si32> {
    %p = constant() value[dense<false>] -> tensor<i1>
    %b = cond(%p, %a) true_region[^one] false_region[^two] -> tensor<si32>
    return %b
  }
  region ^one(%a: tensor<si32>) -> tensor<si32> {
    return %a
  }
  region ^two(%a: tensor<si32>) -> tensor<si32> {
    %b = neg(%a) -> tensor<si32>
    return %b
  }
}
"""
    program = read(text)
    run_pipeline(program, "canonicalize,cse,dce", PassContext())
    assert [op.name for op in program.main.body] == ["ptir.neg"]
    assert not program.regions


def test_the_seconds_of_passes_are_those_of_the_run() -> None:
    context, start = PassContext(), perf_counter()
    run_pipeline(read("func @f(%x: tensor<f32, 2>) -> tensor<f32, 2> {\n  return %x\n}\n"), "cse,dce,canonicalize", context)
    took = [seconds for _, seconds in context.timings]
    assert len(took) == 3 and min(took) >= 0 and sum(took) <= perf_counter() - start


@pytest.mark.parametrize("name", sorted({*names("ptir")} - WITH_FILES))
def test_a_pass_takes_no_more_steps_than_it_may(name: str) -> None:
    """With as many as it took it does the same. `ptir bisect` looks for a fault so."""
    for program in [grow(seed, 12) for seed in range(6)]:
        run_pipeline(whole := clone(program), name, free := PassContext(step_limit=10**6))
        for limit in sorted({1, max(free.steps - 1, 1), max(free.steps, 1)}):
            run_pipeline(some := clone(program), name, held := PassContext(step_limit=limit))
            assert held.steps <= limit
            assert limit < free.steps or write(some) == write(whole)


@pytest.mark.parametrize(("name", "first"), [("layout", "canonicalize"), ("fold-scales{range=true}", "convolutions")])
def test_each_change_of_a_pass_without_the_driver_is_a_step(name: str, first: str) -> None:
    """Here it makes as many in each of two functions."""
    one = layout_text(LAYOUT["subtracted"])
    two = "".join(one.replace("@main", f"@{f}") for f in ("f", "g"))
    program = read(f"program @f (spec_version = ptir.v0.4) {{\n{two}}}\n")
    run_pipeline(program, first)
    run_pipeline(clone(program), name, free := PassContext(step_limit=10**6))
    made = []
    for limit in range(free.steps + 2):
        run_pipeline(some := clone(program), name, held := PassContext(step_limit=limit))
        assert held.steps == min(limit, free.steps)
        made.append(write(some))
    assert free.steps % 2 == 0 < free.steps and len({*made}) == free.steps + 1
    assert made[0] == write(program) and made[-2] == made[-1]
