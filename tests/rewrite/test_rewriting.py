"""The rewrite system by its names, as docs/rules-for-rules.md shows it."""

from __future__ import annotations

import pytest

import ptir_tools as ptir
from ptir_tools import rewriting
from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Literal, Op
from ptir_tools.core.limits import LIMITS, Limits, using
from ptir_tools.passes import PassContext, PassFailure, run_pipeline
from ptir_tools.rewriting import (
    CANONICALIZATION,
    NOTHING,
    CanonicalizePass,
    CSEPass,
    DCEPass,
    FoldResult,
    GreedyConfig,
    Materialize,
    OpRef,
    OpRewritePattern,
    OpView,
    PassManager,
    Pattern,
    PatternSet,
    ReplacedBy,
    Rewriter,
    TransposeView,
    populate_canonicalization,
    rewrites,
    try_fold,
)
from tests.conftest import ROOT


def test_all_names_are_there_and_documented() -> None:
    for name in rewriting.__all__:
        found = getattr(rewriting, name)
        assert getattr(found, "__doc__", None), name


TEXT = """
func @f(%x: tensor<si32, 2>, %y: tensor<si32, 2>) -> (tensor<si32, 2>, tensor<si32, 2>) {
  %one = constant() value[dense<1>] -> tensor<si32, 2>
  %two = add(%one, %one) -> tensor<si32, 2>
  %a = mul(%x, %two) -> tensor<si32, 2>
  %b = mul(%two, %x) -> tensor<si32, 2>
  %dead = sub(%x, %y) -> tensor<si32, 2>
  return %a, %b
}
"""


def shorts(program: Program) -> list[str]:
    return [op.defn.short for op in program.main.body]


def test_the_manager_runs_its_passes_in_order_and_counts() -> None:
    program = ptir.read(TEXT)
    context = PassManager(list(rewriting.default_pipeline())).run(program)
    assert shorts(program) == ["constant", "mul"]
    assert [name for name, _ in context.timings] == ["canonicalize", "cse", "dce"]
    assert context.statistics["canonicalize"]["folds"] == 1 and context.statistics["cse"]["merged"] == 1


def test_passes_alone_do_their_part() -> None:
    for chosen, left in (
        (CanonicalizePass(GreedyConfig(enable_constant_fold=False, enable_dce=False), PatternSet().freeze()), 5),
        (CanonicalizePass(GreedyConfig(enable_dce=False), PatternSet().freeze()), 5),
        (CanonicalizePass(), 3),
        (CSEPass(), 4),
        (DCEPass(), 4),
    ):
        program = ptir.read(TEXT)
        PassManager().add(chosen).run(program)
        assert len(shorts(program)) == left, chosen


def test_a_pass_that_breaks_the_program_is_named() -> None:
    class Breaks:
        name = "breaks"

        def run(self, program: Program, context: PassContext) -> None:
            program.main.body.reverse()

    with pytest.raises(PassFailure, match="after pass `breaks`"):
        PassManager().add(Breaks()).run(ptir.read(TEXT))


def test_what_another_rewriter_did_between_passes_is_seen() -> None:
    class Swaps:
        name = "swaps"

        def run(self, program: Program, context: PassContext) -> None:
            with Rewriter(program.main, program.dialect) as rw:  # not the context's
                a = rw.op(program.main.results[0])
                assert a is not None
                rw.set_results(program.main, [a.operands[0], a.operands[0]])

    program = ptir.read(TEXT)
    PassManager().add(CanonicalizePass(), Swaps(), DCEPass()).run(program)
    assert shorts(program) == [] and program.main.results == [program.main.params[0]] * 2


def fold(text: str, limits: Limits = LIMITS) -> FoldResult:
    """What the last op folds to."""
    program = ptir.read(text)
    with using(limits):
        return try_fold(program.main.body[-1], Rewriter(program.main, program.dialect))


def test_fold_results_say_what_became_of_it() -> None:
    head = "func @f(%x: tensor<si32, 2>) -> tensor<si32, 2> {\n  %c = constant() value[dense<[7, -7]>] -> tensor<si32, 2>\n"
    found = fold(head + "  %r = div(%c, dense<2> : tensor<si32, 2>) -> tensor<si32, 2>\n  return %r\n}")
    assert isinstance(found, Materialize) and found.literal.data == bytes([3, 0, 0, 0, 253, 255, 255, 255])
    assert fold(head + "  %r = add(%c, %x) -> tensor<si32, 2>\n  return %r\n}") is NOTHING
    assert isinstance(ReplacedBy(found.literal).operand, Literal)


def test_what_fails_at_run_time_is_not_put_where_the_program_says_so() -> None:
    program = ptir.read("""
func @f(%x: tensor<si32, 2>) -> tensor<si32, 2> {
  %c = constant() value[dense<[7, 1]>] -> tensor<si32, 2>
  %z = sub(%c, dense<[7, 0]> : tensor<si32, 2>) -> tensor<si32, 2>
  %r = div(%x, %z) -> tensor<si32, 2>
  return %r
}
""")
    PassManager().add(CanonicalizePass()).run(program)
    assert shorts(program) == ["constant", "sub", "div"]  # a constant divisor with a zero would not verify


def test_nothing_is_folded_that_grows_the_program_or_takes_long() -> None:
    wide = "func @f() -> tensor<f32> {{\n  %c = constant() value[dense<1.0>] -> tensor<f32, {n}>\n"
    wide += "  %s = reduce_sum(%c) axes[0] -> tensor<f32>\n  return %s\n}}"
    assert isinstance(fold(wide.format(n=1000)), Materialize)
    assert fold(wide.format(n=10**12)) is NOTHING
    pad = "func @f() -> tensor<f32, 5> {\n  %c = constant() value[dense<[1.0, 2.0]>] -> tensor<f32, 2>\n"
    pad += "  %p = concat(%c, %c, dense<[3.0]> : tensor<f32, 1>) axis[0] -> tensor<f32, 5>\n  return %p\n}"
    assert isinstance(fold(pad), Materialize) and fold(pad, Limits(fold_bytes=4)) is NOTHING


def test_the_canonicalizations_of_one_op_may_be_had_alone() -> None:
    some = populate_canonicalization(PatternSet(), "ptir.transpose").freeze()
    assert {d.name for d in some.by_root} >= {"ptir.transpose"} and len(some.patterns) < len(CANONICALIZATION.patterns) / 2
    program = ptir.read(TEXT.replace("mul(%two, %x)", "neg(%two)").replace("add(%one, %one)", "neg(%one)"))
    PassManager().add(CanonicalizePass(GreedyConfig(enable_constant_fold=False), some)).run(program)
    assert shorts(program) == ["constant", "neg", "mul", "neg"]


def test_op_refs_tell_what_an_op_is() -> None:
    program = ptir.read(
        "func @f(%x: tensor<f32, 3>) -> tensor<f32, 2x3> {\n  %b = broadcast_to(%x) result_shape[2, 3] -> tensor<f32, 2x3>\n"
        "  %e = exp(%b) -> tensor<f32, 2x3>\n  return %e\n}"
    )
    rw = Rewriter(program.main, program.dialect)
    e = OpRef(program.main.body[1], rw)
    unary = e.as_unary()
    assert unary is not None and unary.kind == "exp" and e.as_broadcast() is None and e.as_view(TransposeView) is None
    b = e.definition(unary.x)
    assert b is not None and (broadcast := b.as_broadcast()) is not None and broadcast.result_shape == (2, 3)
    assert b.definition(broadcast.x) is None and b.result_tensor is b.result.type


@pytest.mark.parametrize(
    "path", ["opt/licm.ptir", "opt/prune_nested.ptir", "mind/02_mlp_relu.mind.ir", "tiny/04_gemm_no_permute.json"]
)
def test_the_default_passes_are_those_of_the_pipeline(path: str) -> None:
    text = (ROOT / "testdata" / path).read_text("utf-8")
    one, other = ptir.read(text), ptir.read(text)
    PassManager(list(rewriting.default_pipeline())).run(one)
    run_pipeline(other, "canonicalize,cse,dce")
    assert ptir.write(one) == ptir.write(other)


class Untyped(Pattern):
    """An untyped pattern without a name of its own."""

    roots = ("ptir.neg",)

    def match_and_rewrite(self, root: Op, rw: Rewriter) -> bool:
        rw.replace(root, root.operands[0])
        return True


def test_patterns_are_called_as_their_class_is() -> None:
    program = ptir.read("func @f(%x: tensor<f32>) -> tensor<f32> {\n  %y = neg(%x) -> tensor<f32>\n  return %y\n}\n")
    config = GreedyConfig(expensive_checks=True)
    context = PassManager().add(CanonicalizePass(config, PatternSet().add(Untyped()).freeze())).run(program)
    assert context.statistics["canonicalize"]["untyped"] == 1 and shorts(program) == []


def test_sets_refuse_what_is_no_pattern() -> None:
    class Rootless(OpRewritePattern):  # type: ignore[type-arg]
        def rewrite(self, op: OpView) -> bool:
            return False

    with pytest.raises(TypeError, match="is not a pattern"):
        PatternSet().add(Untyped)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`rootless` names no roots"):
        PatternSet().add(Rootless()).freeze()
    with pytest.raises(ValueError, match=r"`wrong`: no op or family `ptir\.nge`"):
        PatternSet().add(rewrites("ptir.nge")(wrong)).freeze()


def wrong(op: OpView) -> bool:
    """A pattern that says neither yes nor no."""
    return None  # type: ignore[return-value]


def test_expensive_checks_want_yes_or_no() -> None:
    program = ptir.read("func @f(%x: tensor<f32>) -> tensor<f32> {\n  %y = neg(%x) -> tensor<f32>\n  return %y\n}\n")
    patterns = PatternSet().add(rewrites("ptir.neg")(wrong)).freeze()
    with pytest.raises(rewriting.BrokenPattern, match="`wrong` returned None"):
        PassManager().add(CanonicalizePass(GreedyConfig(expensive_checks=True), patterns)).run(program)


def test_the_limits_of_a_context_reach_the_rules() -> None:
    """A rule that makes a constant makes one only as large as the caller allows."""

    def names(**limits: Limits) -> list[str]:
        graph = ptir.Graph()
        x = graph.input("x", "si32", [4])
        made = ptir.optimize(graph.returns(x - x), "canonicalize", **limits)
        return [op.defn.short for op in made.functions[0].ops()]

    assert names() == ["constant"]
    assert names(limits=Limits(fold_bytes=4)) == ["constant", "broadcast_to"]
