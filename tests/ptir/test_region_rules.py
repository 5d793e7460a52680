"""The rules of regions, one by one: programs in which everything else is right, each with its code and what it says."""

from __future__ import annotations

import pytest

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.ir import Literal, Op, Value
from ptir_tools.core.types import tuple_of
from ptir_tools.core.verify import verify
from ptir_tools.core.violations import Violation
from tests.ptir.oracle import program, region, ty

FLAG, S, H, V, W = ty("i1"), ty("f32"), ty("f16"), ty("f32", 3), ty("f32", 4)
PAIR = tuple_of((S, S))
MISMATCH = "RegionSignatureMismatch"


def block(name, params, results):
    """A region that returns zeros of the types `results`."""

    def zeros(b, *_):
        return [b.op("constant", value=Literal(t, bytes(t.dtype.packed_bytes(t.count)))) for t in results]

    return region(name, params, zeros)


SCAN = {"carry_count": 1, "scan_output_count": 1}
RULES = {
    # cond
    "the predicate is a tuple": (
        ("cond", PAIR, [S]),
        [([S], [S])] * 2,
        {},
        "OperandTypeMismatch",
        "the predicate is (tensor<f32>, ",
    ),
    "the predicate is no i1": (("cond", S, [S]), [([S], [S])] * 2, {}, "DTypeNotSupported", "the predicate is f32"),
    "the predicate is a vector": (("cond", ty("i1", 1), [S]), [([S], [S])] * 2, {}, "OperandRankMismatch", "is a scalar"),
    "the true region takes another type": (
        ("cond", FLAG, [S]),
        [([V], [S]), ([S], [S])],
        {},
        MISMATCH,
        "true_region ^r0: parameter 0 is tensor<f32, 3>, expected tensor<f32>",
    ),
    "the true region takes too many": (
        ("cond", FLAG, [S]),
        [([S, S], [S]), ([S], [S])],
        {},
        MISMATCH,
        "true_region ^r0: parameters: expected 1, got 2",
    ),
    "the false region takes another type": (
        ("cond", FLAG, [S]),
        [([S], [S]), ([H], [S])],
        {},
        MISMATCH,
        "false_region ^r1: parameter 0",
    ),
    "the regions return different types": (
        ("cond", FLAG, [S]),
        [([S], [S]), ([S], [V])],
        {},
        MISMATCH,
        "false_region ^r1: result 0",
    ),
    "the regions return different numbers": (
        ("cond", FLAG, [S]),
        [([S], [S]), ([S], [S, S])],
        {},
        MISMATCH,
        "expected 1, got 2",
    ),
    # while
    "the condition takes another type": (
        ("while", [S]),
        [([V], [FLAG, S]), ([S], [S])],
        {},
        MISMATCH,
        "cond_region ^r0: parameter 0",
    ),
    "the condition returns no flag": (("while", [S]), [([S], [S, S]), ([S], [S])], {}, MISMATCH, "returns an i1 scalar first"),
    "the condition returns a vector of flags": (
        ("while", [S]),
        [([S], [ty("i1", 1), S]), ([S], [S])],
        {},
        MISMATCH,
        "returns an i1 scalar first, got (tensor<i1, 1>, tensor<f32>)",
    ),
    "the condition returns nothing": (
        ("while", [S]),
        [([S], []), ([S], [S])],
        {},
        MISMATCH,
        "returns an i1 scalar first, got ()",
    ),
    "the condition returns the flag alone": (
        ("while", [S]),
        [([S], [FLAG]), ([S], [S])],
        {},
        MISMATCH,
        "carried values: expected 1",
    ),
    "the condition returns another carry": (
        ("while", [S]),
        [([S], [FLAG, V]), ([S], [S])],
        {},
        MISMATCH,
        "cond_region ^r0: carried value 0",
    ),
    "the body takes another type": (("while", [S]), [([S], [FLAG, S]), ([V], [S])], {}, MISMATCH, "body_region ^r1: parameter 0"),
    "the body returns another carry": (
        ("while", [S]),
        [([S], [FLAG, S]), ([S], [H])],
        {},
        MISMATCH,
        "body_region ^r1: carried value 0",
    ),
    "the body returns too many": (("while", [S]), [([S], [FLAG, S]), ([S], [S, S])], {}, MISMATCH, "expected 1, got 2"),
    # scan
    "more carries than operands": (
        ("scan", [S, V]),
        [([S, S], [S, S])],
        {"carry_count": 3, "scan_output_count": 1},
        "InvalidAttributeValue",
        "carry_count 3 is not in [0, 2]",
    ),
    "less than no carry": (
        ("scan", [S, V]),
        [([S, S], [S, S])],
        {"carry_count": -1, "scan_output_count": 1},
        "InvalidAttributeValue",
        "carry_count -1",
    ),
    "less than no output": (
        ("scan", [S, V]),
        [([S, S], [S, S])],
        {"carry_count": 1, "scan_output_count": -1},
        "InvalidAttributeValue",
        "scan_output_count -1 is negative",
    ),
    "nothing to scan": (
        ("scan", [S]),
        [([S], [S])],
        {"carry_count": 1, "scan_output_count": 0},
        "OperandCountMismatch",
        "at least one input",
    ),
    "a scanned tuple": (("scan", [S, PAIR]), [([S, S], [S, S])], SCAN, "OperandTypeMismatch", "a scanned input is a tensor"),
    "a scanned scalar": (("scan", [S, S]), [([S, S], [S, S])], SCAN, "OperandRankMismatch", "has a leading time axis"),
    "inputs of different length": (
        ("scan", [S, V, W]),
        [([S, S, S], [S, S])],
        SCAN,
        "OperandShapeMismatch",
        "scanned inputs tensor<f32, 3> and tensor<f32, 4> differ in their time axis",
    ),
    "the body takes the whole input": (("scan", [S, V]), [([S, V], [S, S])], SCAN, MISMATCH, "body_region ^r0: parameter 1"),
    "the body returns no output": (("scan", [S, V]), [([S, S], [S])], SCAN, MISMATCH, "returns 1 values"),
    "the body carries another type": (("scan", [S, V]), [([S, S], [V, S])], SCAN, MISMATCH, "body_region ^r0: carried value 0"),
}


@pytest.mark.parametrize("name", RULES)
def test_one_rule_broken(name):
    (op, *operands), blocks, attrs, code, message = RULES[name]
    regions = [block(f"r{i}", *signature) for i, signature in enumerate(blocks)]
    with pytest.raises(Violation) as caught:
        program(op, operands, attrs, regions)
    assert caught.value.code == code
    assert message in caught.value.message


def test_an_output_that_is_a_tuple_cannot_be_stacked():
    body = region("r0", [PAIR, S], lambda b, t, x: [t, t])
    with pytest.raises(Violation, match="an output is a tensor"):
        program("scan", [[PAIR, V]], SCAN, [body])


GOOD = {
    "cond": (("cond", FLAG, [S]), [([S], [S, V])] * 2, {}, tuple_of((S, V))),
    "a branch without arguments": (("cond", FLAG, []), [([], [V])] * 2, {}, V),
    "while": (("while", [S, V]), [([S, V], [FLAG, S, V]), ([S, V], [S, V])], {}, tuple_of((S, V))),
    "a loop of one carry": (("while", [S]), [([S], [FLAG, S]), ([S], [S])], {}, S),
    "scan": (("scan", [S, V, ty("f32", 3, 4)]), [([S, S, W], [S, W])], SCAN, tuple_of((S, ty("f32", 3, 4)))),
    "outputs alone": (("scan", [V]), [([S], [H])], {"carry_count": 0, "scan_output_count": 1}, ty("f16", 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_what_the_rules_allow(name):
    (op, *operands), blocks, attrs, result = GOOD[name]
    found = program(op, operands, attrs, [block(f"r{i}", *signature) for i, signature in enumerate(blocks)])
    assert verify(found, Diagnostics())
    assert found.main.results[0].type is result


@pytest.mark.parametrize("wrong", [([V], [S]), ([S], [H]), ([S, S], [S]), ([S], [S, S])])
def test_a_region_is_checked_where_an_op_of_the_same_types_was_right_before(wrong):
    """What is known of operand types says nothing of regions."""
    right, bad = block("r0", [S], [S]), block("r1", *wrong)
    made = program("cond", [FLAG, [S]], regions=[right, right])
    op = made.main.body[0]
    again = Value(S, "again")
    again.op = Op(op.defn, op.operands, op.attrs, (again,), (right, right))
    made.main.body.append(again.op)
    assert verify(made, Diagnostics())
    again.op.regions = (right, bad)
    made.regions = [right, bad]
    assert not verify(made, found := Diagnostics())
    assert MISMATCH in [d.code for d in found]
