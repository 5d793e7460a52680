"""The greedy driver, sentence by sentence of its specification; what it does beyond is in rewrite/test_greedy.py."""

from __future__ import annotations

from typing import Any

import pytest

import ptir_tools as ptir
from ptir_tools.core.builder import single_function
from ptir_tools.core.declare import OPS
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import F32, SI32
from ptir_tools.core.ir import Op, Value
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.core.types import tensor
from ptir_tools.dialects.ptir import DIALECT
from ptir_tools.dialects.ptir.rewrites.helpers import HELPERS, splat
from ptir_tools.passes import PassContext, run_pipeline
from ptir_tools.rewrite.driver import GreedyConfig, GreedyStats, apply_patterns_and_fold_greedily
from ptir_tools.rewrite.pattern_set import PatternSet
from ptir_tools.rewrite.patterns import OpView, Pattern, rewrites
from ptir_tools.rewrite.rewriter import Rewriter
from ptir_tools.rewrite.rules import rules
from ptir_tools.rewrite.step_log import BrokenPattern

T, N = tensor(F32, (3,)), tensor(SI32, (3,))


def chain(*names: str) -> Program:
    """Unary ops one after the other on `x`; the last is returned."""
    program, b = single_function(DIALECT)
    v = b.param(T, "x")
    for name in names:
        v = b.op(name, v)
    b.results(v)
    return program


def shorts(program: Program) -> list[str]:
    return [op.defn.short for op in program.main.body]


def rule(text: str, benefit: int = 1) -> list[Pattern]:
    return rules(text, DIALECT, HELPERS, splat, benefit)


def drive(target: Program | Rewriter, *patterns: Pattern, **config: Any) -> GreedyStats:
    frozen = PatternSet(list(patterns)).freeze()
    if isinstance(target, Rewriter):
        return apply_patterns_and_fold_greedily(target, frozen, GreedyConfig(**config))
    with Rewriter(target.main, DIALECT) as rw:
        return apply_patterns_and_fold_greedily(rw, frozen, GreedyConfig(**config))


def recorder(*roots: str, depth: int = 1) -> tuple[Pattern, list[Op]]:
    """A pattern that never matches, and the ops it was tried on."""
    tried: list[Op] = []

    @rewrites(*roots, depth=depth, benefit=9)
    def never(op: OpView) -> bool:
        tried.append(op.root)
        return False

    return never, tried


ALL = ("ptir.constant", "ptir.elementwise_unary", "ptir.elementwise_binary")


def test_the_worklist_has_all_ops_but_constants_and_is_popped_bottom_up() -> None:
    program, b = single_function(DIALECT)
    one = splat(T, 1.0)[0]
    b.block.body.append(one)
    b.results(b.op("neg", b.op("add", b.op("exp", b.param(T)), one.results[0])))
    never, tried = recorder(*ALL)
    drive(program, never)
    assert [op.defn.short for op in tried] == ["neg", "add", "exp"]


def test_another_order_of_the_worklist_gives_the_same() -> None:
    orders = set()
    for seed in range(8):
        never, tried = recorder(*ALL)
        program = chain("exp", "neg", "neg", "log", "neg", "neg", "abs")
        drive(program, never, *rule("double: neg(neg(x)) => x"), seed=seed)
        assert shorts(program) == ["exp", "log", "abs"]
        orders.add(tuple(op.defn.short for op in tried))
    assert len(orders) > 1


def test_a_change_puts_back_users_as_far_up_as_patterns_look_and_no_further() -> None:
    program = chain("exp", "neg", "abs", "tanh", "log")
    tried: dict[str, list[Op]] = {}
    watchers: list[Pattern] = []
    for name, depth in (("neg", 2), ("abs", 3), ("tanh", 3), ("log", 3)):
        never, tried[name] = recorder(f"ptir.{name}", depth=depth)
        watchers.append(never)
    drive(program, *watchers, *rule("turn: exp(x) => erf(x)"))
    assert {name: len(ops) for name, ops in tried.items()} == {"neg": 2, "abs": 2, "tanh": 2, "log": 1}


def test_a_lost_use_puts_back_what_asks_who_uses_its_operand() -> None:
    program, b = single_function(DIALECT)
    e = b.op("exp", b.param(T))
    b.results(b.op("neg", e), b.op("abs", b.op("tanh", b.op("tanh", b.op("log", e)))))
    lonely = rule("lonely: neg(e := exp(x)) => tanh(x) if has_one_use(rw, e, root)")
    dies = rule("dies: log(exp(x)) => x")
    drive(program, *lonely, *dies)
    assert shorts(program) == ["tanh", "tanh", "tanh", "abs"]


def test_a_pattern_that_failed_is_tried_again_only_when_what_it_looks_at_has_changed() -> None:
    program = chain("log", "neg", "neg", "exp", "neg", "neg", "abs")
    shallow, once = recorder("ptir.exp", depth=1)
    deeper, again = recorder("ptir.exp", depth=2)
    drive(program, shallow, deeper, *rule("double: neg(neg(x)) => x"))
    assert len(once) == 2  # its operand was replaced: its own version changed
    program = chain("log", "exp", "neg", "neg", "abs")
    shallow, once = recorder("ptir.exp", depth=1)
    drive(program, shallow, *rule("double: neg(neg(x)) => x\nturn: log(x) => tanh(x)"))
    assert len(once) == 2 and len(again) == 2
    program = chain("log", "tanh", "exp")
    shallow, once = recorder("ptir.exp", depth=1)
    drive(program, shallow, *rule("turn: log(x) => erf(x)"))
    assert len(once) == 1  # what changed is below its operand


def test_the_root_is_folded_after_each_rewrite_before_other_patterns_see_it() -> None:
    program, b = single_function(DIALECT)
    two = splat(N, 2)[0]
    b.block.body.append(two)
    b.results(b.op("add", b.param(N), two.results[0]))

    @rewrites("ptir.add", benefit=2)
    def constant_operands(op: OpView) -> bool:
        if not isinstance(op.x, Value) or op.x.op is not None:
            return False
        op.rw.set_operands(op.root, (op.y, op.y))
        return True

    never, tried = recorder("ptir.add")
    stats = drive(program, never, constant_operands)
    assert len(tried) == 1 and (stats.rewrites, stats.folds) == (1, 1)
    assert shorts(program) == ["constant"]


@pytest.mark.parametrize(("fold", "left"), [(True, ["constant"]), (False, ["constant", "constant", "add"])])
def test_constants_are_folded_unless_told_not_to(fold: bool, left: list[str]) -> None:
    program, b = single_function(DIALECT)
    ops = [splat(N, n)[0] for n in (1, 2)]
    b.block.body += ops
    b.results(b.op("add", ops[0].results[0], ops[1].results[0]))
    stats = drive(program, enable_constant_fold=fold)
    assert shorts(program) == left and stats.folds == fold


@pytest.mark.parametrize("dce", [True, False])
def test_dead_ops_and_what_only_they_used_go_unless_told_not_to(dce: bool) -> None:
    program, b = single_function(DIALECT)
    x = b.param(T)
    b.op("exp", b.op("neg", b.op("abs", x)))  # dead from the start
    b.results(b.op("log", b.op("tanh", b.op("erf", x))))
    stats = drive(program, *rule("cut: log(tanh(y)) => tanh(y)"), enable_dce=dce)
    assert shorts(program) == (["erf", "tanh"] if dce else ["abs", "neg", "exp", "erf", "tanh", "tanh"])
    assert stats.erased == (4 if dce else 0)


def test_what_a_pattern_builds_and_does_not_use_goes() -> None:
    @rewrites("ptir.exp", depth=1)
    def wasteful(op: OpView) -> bool:
        op.rw.build(op.root, "abs", op.rw.build(op.root, "neg", op.x))
        return op.replace(op.rw.build(op.root, "tanh", op.x))

    program = chain("exp")
    assert drive(program, wasteful).erased == 2
    assert shorts(program) == ["tanh"]


def test_max_iterations_bounds_rewrites_and_folds_and_the_rest_is_done_later() -> None:
    program = chain(*["neg"] * 8)
    double = rule("double: neg(neg(x)) => x")
    with Rewriter(program.main, DIALECT) as rw:
        assert drive(rw, *double, max_iterations=2).rewrites == 2
        assert drive(rw, *double).rewrites == 2
    assert shorts(program) == []


REGIONS = """program @f (spec_version = ptir.v0.4) {
  func @f(%p: tensor<i1>, %x: tensor<f32, 3>) -> tensor<f32, 3> {
    %a = cond(%p, %x) true_region[^r0] false_region[^r1] -> tensor<f32, 3>
    return %a
  }
  region ^r0(%a: tensor<f32, 3>) -> tensor<f32, 3> {
    %b = neg(%a) -> tensor<f32, 3>
    %c = neg(%b) -> tensor<f32, 3>
    return %c
  }
  region ^r1(%a: tensor<f32, 3>) -> tensor<f32, 3> {
    return %a
  }
}
"""


def test_regions_are_driven_too() -> None:
    program = ptir.read(REGIONS)
    run_pipeline(program, "canonicalize")
    assert [len(r.body) for r in program.regions] == [0, 0]


def test_a_settled_block_is_looked_at_again_only_where_it_was_edited() -> None:
    program = chain("exp", "log", "abs", "tanh", "erf")
    never, tried = recorder(*ALL)
    frozen = PatternSet([never]).freeze()
    rw = Rewriter(program.main, DIALECT)
    apply_patterns_and_fold_greedily(rw, frozen)
    assert len(tried) == 5
    apply_patterns_and_fold_greedily(rw, frozen)
    assert len(tried) == 5
    abs_op = program.main.body[2]
    rw.replace(abs_op, rw.build(abs_op, "neg", abs_op.operands[0]))
    apply_patterns_and_fold_greedily(rw, frozen)
    assert sorted(op.defn.short for op in tried[5:]) == ["log", "neg", "tanh"]  # `log` has another user


def test_the_default_pipeline_ends_when_each_pass_was_quiet() -> None:
    program = ptir.read(REGIONS.replace("neg(%b)", "abs(%b)"))
    context = PassContext()
    run_pipeline(program, "fixpoint(canonicalize,cse,dce)", context)
    assert [name for name, _ in context.timings] == ["canonicalize", "cse", "dce", "canonicalize"]
    assert context.kept == {}  # nothing is held when it is over


def test_a_wide_op_waits_until_its_operands_are_done() -> None:
    program, b = single_function(DIALECT)
    x = b.param(T)
    b.results(b.op("concat", [b.op("neg", b.op("neg", x)) for _ in range(200)], axis=0))
    tried: list[Op] = []

    @rewrites("ptir.concat")
    def never(op: OpView) -> bool:
        tried.append(op.root)
        return False

    drive(program, never, *rule("double: neg(neg(x)) => x"))
    assert shorts(program) == ["concat"] and len(tried) == 2


def test_replacing_by_another_type_is_the_fault_of_the_pattern() -> None:
    @rewrites("ptir.reshape")
    def wrong(op: OpView) -> bool:
        op.rw.replace(op.root, op.x)
        return True

    program, b = single_function(DIALECT)
    b.results(b.op("reshape", b.param(T), new_shape=(3, 1)))
    with pytest.raises(BrokenPattern, match="`wrong`: replacement of"):
        drive(program, wrong, expensive_checks=True)


@pytest.mark.parametrize(("number", "fires"), [("0", "00"), ("0.0", "0"), ("-0.0", "-"), ("1", "")])
def test_numbers_of_rules_tell_the_zeros_apart(number: str, fires: str) -> None:
    for kind, value in (("0", 0.0), ("-", -0.0)):
        program, b = single_function(DIALECT)
        c = splat(T, value)[0]
        b.block.body.append(c)
        b.results(b.op("add", b.param(T), c.results[0]))
        stats = drive(program, *rule(f"r: add(x, {number}) => x"))
        assert stats.rewrites == (kind in fires or fires == "00"), kind


def test_the_step_log_tells_rewrites_and_folds_in_order() -> None:
    program, b = single_function(DIALECT)
    one = splat(N, 1)[0]
    b.block.body.append(one)
    y = b.op("add", one.results[0], one.results[0])
    b.results(b.op("neg", b.op("neg", b.op("mul", b.param(N), y))))
    steps: list[dict[str, Any]] = []
    drive(program, *rule("double: neg(neg(x)) => x"), log=steps.append)
    assert [s["event"] for s in steps] == ["changed op", "erased", "folded", "erased"]
    assert [s["pattern"] for s in steps] == ["double", None, "fold", None]
    assert steps[0]["before"].startswith("%") and "constant" in steps[2]["after"][0]


def test_patterns_see_ops_on_constants_before_they_are_folded_unless_folding_is_first() -> None:
    for first, seen in ((False, 1), (True, 0)):
        program, b = single_function(DIALECT)
        one = splat(N, 1)[0]
        b.block.body.append(one)
        b.results(b.op("add", one.results[0], one.results[0]))
        pattern, tried = recorder("ptir.add")
        assert drive(program, pattern, fold_first=first).folds == 1 and len(tried) == seen


def test_expensive_checks_find_a_pattern_that_looks_deeper_than_it_says() -> None:
    @rewrites("ptir.neg", depth=2)
    def deep(op: OpView) -> bool:
        below = op.defined_by(op.x, "exp")
        below = below and below.defined_by(below.x, "log")
        return below is not None and below.defined_by(below.x, "tanh") is not None and op.replace(below.x)

    with pytest.raises(BrokenPattern, match=r"`deep` matches .* not tried again"):
        drive(chain("erf", "log", "exp", "neg"), deep, *rule("late: erf(x) => tanh(x)"), expensive_checks=True)


def test_a_pattern_that_crashes_is_named_with_its_op() -> None:
    @rewrites("ptir.neg")
    def broken(op: OpView) -> bool:
        raise IndexError("nothing there")

    with pytest.raises(IndexError) as info:
        drive(chain("neg"), broken)
    assert info.value.__notes__ == ["in pattern `broken` at %v0 = neg(%x) -> tensor<f32, 3>"]


def test_a_rule_that_fails_is_left_out_and_the_program_is_what_the_others_make_of_it() -> None:
    @rewrites("ptir.tanh")
    def halfway(op: OpView) -> bool:
        op.rw.build(op.root, "erf", op.x)
        op.rw.replace_all_uses(op.result, op.rw.build(op.root, "log", op.x))
        op.rw.set_operands(op.root, [op.rw.block.params[0]])
        op.rw.erase(op.root)
        raise IndexError("nothing there")

    good = rule("r: neg(neg(x)) => x\ns: exp(x) => abs(x)")
    wanted, program = chain("exp", "tanh", "neg", "neg", "tanh"), chain("exp", "tanh", "neg", "neg", "tanh")
    drive(wanted, *good)
    diagnostics, log = Diagnostics(), list[dict[str, Any]]()
    with Rewriter(program.main, DIALECT, diagnostics) as rw:
        config = GreedyConfig(log=log.append)
        stats = apply_patterns_and_fold_greedily(rw, PatternSet([halfway, *good]).freeze(), config)
        assert rw.verify() == []
    assert ptir.write(program) == ptir.write(wanted) and shorts(program) == ["abs", "tanh", "tanh"]
    assert stats.patterns == {"r": 1, "s": 1}
    assert [(d.code, "`halfway`" in d.message, "IndexError: nothing there" in d.message) for d in diagnostics] == [
        ("BrokenRule", True, True)
    ]
    assert [s["pattern"] for s in log if s["event"] == "failed"] == ["halfway"]
    with pytest.raises(IndexError), Rewriter(chain("tanh").main, DIALECT, Diagnostics()) as rw:
        apply_patterns_and_fold_greedily(rw, PatternSet([halfway]).freeze(), GreedyConfig(expensive_checks=True))


def test_a_fold_that_fails_is_left_out_and_others_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(op: Op) -> None:
        raise ValueError("no")

    program, b = single_function(DIALECT)
    one = splat(N, 1)[0]
    b.block.body.append(one)
    x = b.op("reshape", b.param(N), new_shape=(3,))
    b.results(x, b.op("add", one.results[0], one.results[0]))
    monkeypatch.setattr(OPS["ptir.reshape"], "fold", fails)
    diagnostics = Diagnostics()
    with Rewriter(program.main, DIALECT, diagnostics) as rw:
        stats = apply_patterns_and_fold_greedily(rw, PatternSet([]).freeze())
    assert stats.folds == 1 and sorted(shorts(program)) == ["constant", "reshape"]
    assert ["fold of ptir.reshape" in d.message for d in diagnostics] == [True]


def test_rules_that_undo_each_other_in_a_big_program_are_found_where_they_do() -> None:
    body = "".join(f"  %v{i + 1} = neg(%v{i}) -> tensor<f32, 2>\n" for i in range(3000))
    text = f"func @f(%v0: tensor<f32, 2>) -> tensor<f32, 2> {{\n{body}  %e = exp(%v3000) -> tensor<f32, 2>\n  return %e\n}}\n"
    program = ptir.read(text)
    again = rule("forth: exp(x) => log(x)\nback: log(x) => exp(x)")
    with pytest.raises(LimitExceeded, match="`back`, `forth` undo each other") as info:
        drive(program, *again, enable_constant_fold=False)
    assert program.source and text[program.source.span(info.value.loc).start :].startswith("%e = exp")
