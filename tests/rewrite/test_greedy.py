"""The greedy driver and the rule language, on small pattern sets of their own."""

from __future__ import annotations

from time import process_time
from typing import Any

import pytest

from ptir_tools.core.builder import single_function
from ptir_tools.core.declare import OPS
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import F32
from ptir_tools.core.ir import Op
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.core.types import tensor
from ptir_tools.dialects.ptir import DIALECT
from ptir_tools.dialects.ptir.rewrites.canonicalization import CANONICALIZATION
from ptir_tools.dialects.ptir.rewrites.helpers import HELPERS, splat
from ptir_tools.passes import PassContext, run_pipeline
from ptir_tools.rewrite.driver import GreedyConfig, GreedyStats, apply_patterns_and_fold_greedily
from ptir_tools.rewrite.pattern_set import PatternSet
from ptir_tools.rewrite.patterns import Effect, OpRewritePattern, OpView, Pattern, rewrites
from ptir_tools.rewrite.rewriter import Rewriter
from ptir_tools.rewrite.rules import rules
from ptir_tools.rewrite.step_log import BrokenPattern

T = tensor(F32, (3, 3))


def chain(*names: str) -> Program:
    """Unary ops one after the other on `x`; the last is returned."""
    program, b = single_function(DIALECT)
    v = b.param(T, "x")
    for i, name in enumerate(names):
        v = b.op(name, v, name=f"v{i}")
    b.results(v)
    return program


def shorts(program: Program) -> list[str]:
    return [op.defn.short for op in program.main.body]


def drive(program: Program, *patterns: Pattern, **config: Any) -> GreedyStats:
    with Rewriter(program.main, DIALECT) as rw:
        return apply_patterns_and_fold_greedily(rw, PatternSet(list(patterns)).freeze(), GreedyConfig(**config))


def rule(text: str, benefit: int = 1) -> list[Pattern]:
    return rules(text, DIALECT, HELPERS, splat, benefit)


def test_rules_apply_to_a_fixpoint_and_dead_ops_go():
    program = chain(*["neg"] * 7)
    stats = drive(program, *rule("double: neg(neg(x)) => x"), expensive_checks=True)
    assert shorts(program) == ["neg"]
    assert (stats.rewrites, stats.erased) == (3, 3) and stats.patterns["double"] == 3


def test_higher_benefit_goes_first_and_a_cost_model_overrides_it():
    low, high = rule("low: exp(x) => abs(x)", 1), rule("high: exp(x) => neg(x)", 5)
    program = chain("exp")
    drive(program, *low, *high)
    assert shorts(program) == ["neg"]
    program = chain("exp")
    drive(program, *low, *high, cost_model=lambda op, pattern, rw: 9 if pattern.name == "low" else 0)
    assert shorts(program) == ["abs"]


def test_deep_pattern_matches_after_a_change_three_levels_down():
    program = chain("exp", "log", "tanh", "erf")
    deep = rule("deep: erf(tanh(log(neg(x)))) => x")
    drive(program, *deep, *rule("turn: exp(x) => neg(x)"))
    assert shorts(program) == []


def test_failure_is_remembered_until_something_changes():
    tried: list[Op] = []

    class Never(Pattern):
        name, roots, depth = "never", ("ptir.exp",), 1

        def match_and_rewrite(self, root: Op, rw: Rewriter) -> bool:
            tried.append(root)
            return False

    program = chain("neg", "exp", "neg", "neg")
    drive(program, Never(), *rule("double: neg(neg(x)) => x"))
    assert len(tried) == 1


def test_rules_that_undo_each_other_are_named():
    program = chain("exp")
    with pytest.raises(LimitExceeded, match="`back`, `forth`"):
        drive(program, *rule("forth: exp(x) => log(x)\nback: log(x) => exp(x)"))


def test_max_iterations_bounds_the_rewrites():
    program = chain(*["neg"] * 8)
    assert drive(program, *rule("double: neg(neg(x)) => x"), max_iterations=2).rewrites == 2


def test_typed_pattern_with_may_match():
    class Drop(OpRewritePattern):
        name, roots = "drop", ("ptir.abs",)

        def may_match(self, op: OpView) -> bool:
            return op.defined_by(op.x, "exp") is not None

        def rewrite(self, op: OpView) -> bool:
            assert op.result_tensor is T and op.operand_value(0) is op.x
            return op.replace(op.x)

    program = chain("neg", "abs", "exp", "abs")
    drive(program, Drop(), expensive_checks=True)
    assert shorts(program) == ["neg", "abs", "exp"]


@pytest.mark.parametrize("lies", [True, False])
def test_expensive_checks_find_a_pattern_that_lies(lies: bool) -> None:
    @rewrites("ptir.exp")
    def liar(op: OpView) -> bool:
        if not lies:
            op.rw.build(op.root, "neg", op.x)
        return lies

    with pytest.raises(BrokenPattern, match="changed nothing" if lies else "changed the program"):
        drive(chain("exp"), liar, expensive_checks=True)


def test_expensive_checks_find_a_use_before_its_definition():
    @rewrites("ptir.exp")
    def swap(op: OpView) -> bool:
        (user,) = op.rw.users_of(op.result)
        later = op.rw.build(user, "neg", op.x)
        op.rw.set_operands(op.root, (later,))
        return True

    with pytest.raises(BrokenPattern, match="before its definition"):
        drive(chain("exp", "abs"), swap, expensive_checks=True)


def test_log_has_a_record_per_step():
    records: list[dict[str, Any]] = []
    program = chain("exp", "neg", "neg")
    drive(program, *rule("double: neg(neg(x)) => x\nturn: exp(x) => abs(x)"), log=records.append)
    assert [r["event"] for r in records] == ["changed op", "erased", "changed op"]
    assert [r["pattern"] for r in records] == ["double", None, "turn"]
    assert records[1]["before"] == "%v1 = neg(%v0) -> tensor<f32, 3x3>" and records[1]["after"] == []
    assert records[2]["before"] == "%v0 = exp(%x) -> tensor<f32, 3x3>"
    assert records[2]["after"] == ["%v0 = abs(%x) -> tensor<f32, 3x3>"]


def test_replacement_of_another_type_is_refused():
    program, b = single_function(DIALECT)
    x = b.param(tensor(F32, (3,)))
    b.results(b.op("neg", b.op("broadcast_to", x, result_shape=(2, 3))))
    drive(program, *rule("wrong: neg(broadcast_to(x, result_shape=_)) => x"))
    assert shorts(program) == ["broadcast_to", "neg"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: neg(x)", "not a rule"),
        ("a: nug(x) => x", "no op or family `nug`"),
        ("a: transpose(x, prm=p) => x", "no attribute `prm`"),
        ("a: transpose(x) => x", "needs its attribute `perm`"),
        ("a: neg(x) => y", "`y` is not bound"),
        ("a: x => x", "not an op"),
        ("a: neg(x) => elementwise_unary(x)", "not matched"),
        ("a: neg(x) => add(x, 1)", "no type"),
    ],
)
def test_rule_that_makes_no_sense_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rule(text)


def test_commutative_ops_match_in_both_orders_and_families_keep_their_op():
    both = rule("r: add(x, neg(y)) => sub(x, y)")
    assert len(both) == 2 and len(rule("r: add(x, x) => x")) == 1
    program, b = single_function(DIALECT)
    x = b.param(tensor(F32, (3,)))
    b.results(b.op("tanh", b.op("broadcast_to", x, result_shape=(2, 3))))
    drive(
        program,
        *rule("f: elementwise_unary(broadcast_to(x, result_shape=s)) => broadcast_to(elementwise_unary(x), result_shape=s)"),
    )
    assert shorts(program) == ["tanh", "broadcast_to"]


def test_frozen_set_is_indexed_by_root():
    frozen = CANONICALIZATION
    assert {p.name for p in frozen.by_root[DIALECT.ops["neg"]]} >= {"neg-sub", "unary-of-broadcast", "constant-operands"}
    benefits = [p.benefit for p in frozen.by_root[DIALECT.ops["add"]]]
    assert benefits == sorted(benefits, reverse=True)


def fan_out(n: int) -> Program:
    """n rewrites around one value with n users and one constant with n users."""
    program, b = single_function(DIALECT)
    x = b.param(T, "x")
    zero = splat(T, 1.0)[0]
    b.block.body.append(zero)
    hub = b.op("exp", x)
    b.results(*(b.op("add", b.op("mul", hub, zero.results[0]), hub) for _ in range(n)))
    return program


def long_chain(n: int) -> Program:
    return chain(*["neg" if i % 3 else "exp" for i in range(n)])


@pytest.mark.parametrize("make", [fan_out, long_chain])
def test_time_grows_with_the_program_and_no_faster(make: Any) -> None:
    def seconds(n: int) -> float:
        program = make(n)
        start = process_time()
        run_pipeline(program, "canonicalize,cse,dce", PassContext(verify_each=False))
        return process_time() - start

    seconds(500)
    assert seconds(16_000) < 40 * max(seconds(1_000), 0.005)


def test_users_are_looked_at_apart_for_each_kind_of_look_and_effect():
    """What is kept of one question does not answer another: looks of lost uses, and of patterns of a greater effect."""
    patterns = [*rule("once: add(once neg(x), y) => sub(y, x)"), *rule("far: sub(exp(x), y) => exp(x)  [range]")]
    kept = PatternSet(patterns).freeze()
    asked = [(uses, effect) for uses in (False, True) for effect in Effect]
    for d in (OPS["ptir.neg"], OPS["ptir.exp"], OPS["ptir.abs"]):
        for question in (*asked, *asked[::-1]):
            assert kept.watchers(*question)[d] == PatternSet(patterns).freeze().watchers(*question)[d]
            assert kept.watchers(*question) is kept.watchers(*question)  # computed once
    answers = [kept.watchers(*question)[OPS["ptir.exp"]] for question in asked]
    assert any(answers[0] != answer for answer in answers)
