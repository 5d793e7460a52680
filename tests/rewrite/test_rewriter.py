"""The rewriter: edits keep users, order, results, hints and names right."""

import random

import pytest

from ptir_tools.core.builder import single_function
from ptir_tools.core.declare import OPS
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import F32
from ptir_tools.core.ir import Element, Function, Op, Region, create
from ptir_tools.core.types import tensor, tuple_of
from ptir_tools.dialects.ptir import DIALECT
from ptir_tools.dialects.ptir.hints import Hint
from ptir_tools.rewrite.edits import Event
from ptir_tools.rewrite.order import Order
from ptir_tools.rewrite.rewriter import Rewriter

SQUARE = tensor(F32, (3, 3))


def chain(length: int) -> Program:
    """x, then `length` transposes, each of the one before; the last is returned."""
    program, b = single_function(DIALECT)
    v = b.param(SQUARE, "x")
    for i in range(length):
        v = b.op("transpose", v, perm=(1, 0), name=f"t{i}")
    b.results(v)
    return program


def rewriter(program: Program) -> Rewriter:
    return Rewriter(program.main, program.dialect)


def test_users_uses_and_definitions():
    program = chain(2)
    x, (t0, t1) = program.main.params[0], program.main.body
    rw = rewriter(program)
    assert rw.users_of(x) == [t0] and rw.users_of(t0.result) == [t1] and rw.users_of(t1.result) == []
    assert rw.is_result(t1.result) and not rw.is_result(x)
    assert rw.inst_of(x) is None and rw.inst_of(t0.result) is t0
    assert rw.value_of(t0) is t0.result and rw.type_of(x) is SQUARE and rw.operands(t1) == (t0.result,)
    assert rw.dominates(x, t0) and rw.dominates(t0.result, t1) and not rw.dominates(t1.result, t0)
    assert rw.verify() == []


def test_replace_reaches_results_and_erase_frees_operands():
    program = chain(2)
    x, (t0, t1) = program.main.params[0], program.main.body
    with rewriter(program) as rw:
        rw.replace_all_uses(t1.result, x)
        rw.erase(t1)
        assert rw.unused(t0) and rw.uses(x) == 2
        rw.erase(t0)
        assert rw.verify() == []
    assert program.main.body == [] and program.main.results == [x]


def test_replacement_must_have_the_identical_type():
    program, b = single_function(DIALECT)
    x = b.param(tensor(F32, (2, 3)), "x")
    y = b.op("transpose", x, perm=(1, 0))
    b.results(y)
    with pytest.raises(TypeError):
        rewriter(program).replace_all_uses(y, x)


def test_used_op_cannot_be_erased():
    program = chain(1)
    with pytest.raises(ValueError, match="used"):
        rewriter(program).erase(program.main.body[0])


def test_version_counts_changes_of_operands():
    program = chain(2)
    x, (t0, t1) = program.main.params[0], program.main.body
    rw = rewriter(program)
    rw.replace_all_uses(t0.result, x)
    assert (rw.version(t0), rw.version(t1)) == (0, 1)
    rw.set_operands(t1, (t0.result,))
    assert rw.version(t1) == 2 and rw.uses(t0.result) == 1 and rw.verify() == []


def test_new_value_takes_the_name_of_what_it_replaces():
    program = chain(1)
    x, t0 = program.main.params[0], program.main.body[0]
    with rewriter(program) as rw:
        new = rw.build(t0, "transpose", x, perm=(1, 0))
        between = rw.build(rw.inst_of(new), "transpose", x, perm=(0, 1))
        rw.replace_all_uses(t0.result, new)
        rw.erase(t0)
    assert new.name == "t0" and between.name == "0"
    assert [op.result for op in program.main.body] == [between, new]


def test_hint_is_dropped_when_its_value_changes():
    program = chain(3)
    f = program.main
    f.annotations = [
        Hint(id=i, kind="ElementwiseDag", policy=p, inputs=(f.body[i].result,)) for i, p in enumerate(("Optional", "Required"))
    ]
    found = Diagnostics()
    rw = Rewriter(f, program.dialect, found)
    rw.replace_all_uses(f.body[0].result, f.params[0])
    rw.replace_all_uses(f.body[1].result, f.params[0])
    assert f.annotations == []
    assert [(d.severity, d.code) for d in found] == [("note", "HintDropped"), ("warning", "HintDropped")]
    assert "%t0" in found.items[0].message


def test_hint_is_dropped_when_what_it_computes_within_is_used_outside():
    program = chain(3)
    f = program.main
    x, (t0, t1, t2) = f.params[0], f.body
    copies = [Op(op.defn, op.operands, op.attrs, op.results) for op in (t0, t1)]
    f.annotations = [
        Hint(id=0, kind="ElementwiseDag", policy="Optional", inputs=(x,), exports=(t1.result,), body=copies),
        Hint(id=1, kind="ElementwiseDag", policy="Optional", inputs=(t0.result,)),
    ]
    found = Diagnostics()
    with Rewriter(f, program.dialect, found) as rw:
        rw.set_operands(t2, (t0.result,))
    assert [h.id for h in f.annotations] == [1]
    assert [d.message for d in found] == ["hint 0 is dropped: %t0 is used outside of it"]


def test_listener_hears_inserted_changed_and_freed_ops():
    program = chain(2)
    x, (t0, t1) = program.main.params[0], program.main.body
    rw = rewriter(program)
    heard: list[tuple[Op, Event]] = []
    rw.listen = lambda op, event: heard.append((op, event))
    rw.replace_all_uses(t0.result, x)
    assert heard == [(t1, Event.CHANGED), (t0, Event.FREED)]
    new = rw.build(t1, "transpose", x, perm=(1, 0))
    assert heard[-1] == (new.op, Event.INSERTED)


def test_erasing_an_op_that_uses_a_value_twice_counts_both():
    program, b = single_function(DIALECT)
    x = b.param(SQUARE, "x")
    y = b.op("add", x, x)
    z = b.op("neg", x)
    b.results(z)
    rw = rewriter(program)
    rw.listen = lambda op, event: rw.users_of(x) and None
    rw.listen(y.op, Event.FREED)
    rw.erase(y.op)
    assert rw.uses(x) == 1 and rw.users_of(x) == [z.op] and rw.verify() == []


def test_replaced_value_may_feed_its_replacement():
    program = chain(1)
    t0 = program.main.body[0]
    rw = rewriter(program)
    new = rw.insert_before(t0, create(OPS["ptir.transpose"], (t0.result,), {"perm": (1, 0)}))
    rw.replace_all_uses(t0.result, new)
    assert new.op is not None and new.op.operands == (t0.result,) and rw.uses(t0.result) == 1


def transposes(n: int) -> list[Op]:
    x = single_function(DIALECT)[1].param(SQUARE)
    return [create(OPS["ptir.transpose"], (x,), {"perm": (1, 0)}) for _ in range(n)]


@pytest.mark.parametrize("seed", range(5))
def test_order_agrees_with_a_plain_list(seed: int):
    rng = random.Random(seed)
    ops = transposes(600)
    block = Region(body=ops[:3])
    order, plain = Order(), ops[:3]
    order.add_block(block, block.body)
    order.place(ops[0])  # from now on labels are kept
    for op in ops[3:]:
        at = rng.choice((0, len(plain) - 1, rng.randrange(len(plain))))
        order.insert(op, block, plain[at])
        plain.insert(at, op)
        if rng.random() < 0.2:
            order.remove(plain.pop(rng.randrange(len(plain))))
    assert order.body(block) == plain
    labels = [order.place(op) for op in plain]
    assert labels == sorted(set(labels))


def test_order_survives_many_insertions_at_one_place():
    ops = transposes(20_000)
    block = Region(body=ops[:2])
    order = Order()
    order.add_block(block, block.body)
    order.place(at := ops[1])
    for op in ops[2:]:
        order.insert(op, block, at)
        at = op
    assert order.body(block) == [ops[0], *reversed(ops[2:]), ops[1]]
    assert all(order.before(a, b) for a, b in zip(ops[3:], ops[2:], strict=False))


def test_function_without_edits_is_left_alone():
    program = chain(2)
    body = list(program.main.body)
    with rewriter(program):
        pass
    assert program.main.body == body and isinstance(program.main, Function)


def test_elements_take_the_place_of_a_tuple_that_is_used_by_its_elements_alone() -> None:
    program, b = single_function(DIALECT)
    pair = b.param(tuple_of((SQUARE, SQUARE)), "pair")
    x = b.param(SQUARE, "x")
    made = b.op("add", Element(pair, 0), Element(pair, 1))
    b.results(made, pair)
    with rewriter(program) as rw:
        assert not rw.replace_elements(pair, [x, x])
        assert [(x.value, x.index) for x in program.main.body[0].operands] == [(pair, 0), (pair, 1)]
        assert program.main.results == [made, pair]
    program.main.results, program.main.result_types = [made], [SQUARE]
    with rewriter(program) as rw:
        with pytest.raises(TypeError, match="replacement of the elements"):
            rw.replace_elements(pair, [x])
        assert rw.replace_elements(pair, [x, x])
        assert program.main.body[0].operands == (x, x)


@pytest.mark.parametrize("wide", [2, 40])
def test_uses_of_an_op_of_many_operands_are_those_it_has_now(wide: int) -> None:
    """Each operand is replaced, some of them twice, and by values that it has already."""
    program, b = single_function(DIALECT)
    xs = [b.param(SQUARE, f"x{i}") for i in range(wide)]
    made = b.op("concat", xs, axis=0)
    b.results(made)
    op = program.main.body[0]
    with rewriter(program) as rw:
        want = list(xs)
        for at in [*range(0, wide, 2), 0, wide - 1]:
            old, by = want[at], xs[(at * 7 + 1) % wide]
            if old is by:
                continue
            rw.replace_all_uses(old, by)
            want = [by if x is old else x for x in want]
            assert list(op.operands) == want
            for x in xs:
                assert (op in rw.users_of(x)) is (x in want), (at, x)
                assert rw.uses(x) == want.count(x)


@pytest.mark.parametrize("of_results", [False, True])
@pytest.mark.parametrize("wide", [2, 40])
def test_uses_are_found_where_they_are_after_all_operands_were_set(wide: int, of_results: bool) -> None:
    """What was known of the operands before is of no more use: of those of an op, and of the results of a function."""
    program, b = single_function(DIALECT)
    xs = [b.param(SQUARE, f"x{i}") for i in range(wide)]
    b.results(*xs) if of_results else b.results(b.op("concat", xs, axis=0))
    main = program.main
    with rewriter(program) as rw:
        rw.replace_all_uses(xs[1], xs[0])  # looks for all of them
        turned = [xs[0], *reversed(xs[1:])]
        if of_results:
            rw.set_results(main, turned)
        else:
            rw.set_operands(main.body[0], turned)
        assert [rw.uses(x) for x in xs] == [1] * wide
        rw.replace_all_uses(xs[-1], xs[0])
        assert list(main.results if of_results else main.body[0].operands) == [xs[0], xs[0], *turned[2:]]
        assert rw.uses(xs[0]) == 2 and rw.uses(xs[-1]) == 0
