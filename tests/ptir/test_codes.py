"""Every code of PTIR: its wrong program provokes it, its right program verifies; and what is checked of whole programs."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

import ptir_tools.dialects.ptir as package
from ptir_tools.core.builder import single_function
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.core.dtypes import F32
from ptir_tools.core.evaluate import Context, run_block
from ptir_tools.core.ir import Element, Literal, Op, Value
from ptir_tools.core.source import Source
from ptir_tools.core.symbols import specialize
from ptir_tools.core.types import tensor
from ptir_tools.core.verify import verify
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir import DIALECT, check
from ptir_tools.dialects.ptir.codes import ADVICE, AT_RUN_TIME, EXPLAIN
from ptir_tools.dialects.ptir.gptrs import dump, json
from ptir_tools.dialects.ptir.hints import Hint
from ptir_tools.dialects.ptir.text.format import FORMAT
from ptir_tools.dialects.sniff import EXPLAIN as ANY_FORMAT
from tests.ptir.oracle import region, ty


def outcome(text, form=FORMAT):
    """The codes of what reading and verifying `text` finds, and the program."""
    diagnostics = Diagnostics(Source("x.ptir", text))
    program = form.read(diagnostics.source, diagnostics, Options())
    if program is not None and not diagnostics.errors:
        verify(program, diagnostics)
    return [d.code for d in diagnostics], program


@pytest.mark.parametrize("code", [c for c in EXPLAIN if c not in (*ADVICE, *AT_RUN_TIME)], ids=lambda c: c.code)
def test_wrong_programs_are_refused_with_their_code(code):
    assert outcome(code.wrong)[0] == [code.code]
    assert outcome(code.right)[0] == []


@pytest.mark.parametrize("code", ADVICE, ids=lambda c: c.code)
def test_advice_of_dump_and_json(code):
    for text, want in ((code.wrong, {code.code}), (code.right, set())):
        said, program = outcome(text, FORMAT if code.format == "ptir" else dump.FORMAT)
        diagnostics = Diagnostics()
        list((json if code.code == "LossyFloat" else dump).FORMAT.write(program, diagnostics, Options()))
        assert {*said, *(d.code for d in diagnostics)} == want


@pytest.mark.parametrize("code", AT_RUN_TIME, ids=lambda c: c.code)
def test_wrong_programs_fail_at_run_time_with_their_code(code):
    for text, want in ((code.wrong, code.code), (code.right, None)):
        codes, program = outcome(text)
        assert codes == []
        found = None
        try:
            specialize(program, {})
            run_block(program.main, [np.zeros(p.type.static_shape, np.float32) for p in program.main.params], Context())
        except Violation as violation:
            found = violation.code
        assert found == want


def test_every_code_that_the_dialect_raises_is_explained():
    known = {c.code for c in (*EXPLAIN, *ANY_FORMAT)} | {"NotTranslatable"}
    raised = set()
    for path in Path(package.__file__).parent.rglob("*.py"):
        raised |= set(re.findall(r'Violation\(\s*"(\w+)"', path.read_text()))
        raised |= set(re.findall(r'\.(?:error|warning|note)\(\s*"(\w+)"', path.read_text()))
        raised |= set(re.findall(r'require\([^"\n]*"([A-Z]\w+)"', path.read_text()))
    assert raised and not raised - known


def _hint(kind, policy, inputs, exports, attrs, body):
    attrs = tuple(sorted(attrs.items()))
    return Hint(id=0, kind=kind, policy=policy, inputs=inputs, exports=exports, attrs=attrs, body=body)


def hinted():
    """neg, exp, add of both, with a hint that covers them."""
    p, b = single_function(DIALECT)
    x = b.param(ty("f32", 4), "x")
    n = b.op("neg", x)
    e = b.op("exp", n)
    s = b.op("add", e, x)
    b.results(s)
    attrs = {
        "fusion_kind": ("String", "elementwise_dag_v1"),
        "lhs": ("I64Array", (0, 1, 2)),
        "ops_code": ("I64Array", (0, 2, 0)),
        "ops_kind": ("I64Array", (0, 0, 1)),
        "rhs": ("I64Array", (-1, -1, 0)),
    }
    body = [Op(op.defn, op.operands, op.attrs, op.results) for op in p.main.body]
    p.main.annotations.append(_hint("ElementwiseDag", "Preferred", (x,), (s,), attrs, body))
    return p, attrs


def verdict(p):
    diagnostics = Diagnostics()
    verify(p, diagnostics)
    return [d.code for d in diagnostics]


def test_a_hint_that_agrees_with_its_body():
    p, _ = hinted()
    assert verdict(p) == []


def test_a_payload_whose_nodes_are_read_twice_is_checked_in_time():
    """Each node adds the one before to itself: there are 2^60 ways from the last to the input."""
    p, b = single_function(DIALECT)
    first = x = b.param(ty("f32", 4), "x")
    for _ in range(60):
        x = b.op("add", x, x)
    b.results(x)
    zeros, before = ("I64Array", (0,) * 60), ("I64Array", tuple(range(60)))
    attrs = {
        "fusion_kind": ("String", "elementwise_dag_v1"), "lhs": before, "ops_code": zeros, "ops_kind": ("I64Array", (1,) * 60),
        "rhs": before,
    }  # fmt: skip
    body = [Op(op.defn, op.operands, op.attrs, op.results) for op in p.main.body]
    p.main.annotations.append(_hint("ElementwiseDag", "Preferred", (first,), (x,), attrs, body))
    assert verdict(p) == []


@pytest.mark.parametrize(
    "change",
    [
        {"ops_code": ("I64Array", (0, 4, 0))},
        {"ops_code": ("I64Array", (0, 2, 1))},
        {"ops_kind": ("I64Array", (0, 1, 1))},
        {"lhs": ("I64Array", (0, 0, 2))},
        {"rhs": ("I64Array", (-1, -1, 1))},
        {"rhs": ("I64Array", (-1, -1))},
        {"rhs": ("I64Array", (-1, -1, 9))},
        {"ops_code": ("I64Array", (0, 2, 77))},
        {"lhs": ("String", "no")},
        {"rhs": ("I64Array", (-1, 0, 0))},  # exp has no second operand
        # A node more, which the body does not compute.
        {
            "ops_kind": ("I64Array", (0, 0, 0, 1)),
            "ops_code": ("I64Array", (3, 0, 2, 0)),
            "lhs": ("I64Array", (0, 0, 2, 3)),
            "rhs": ("I64Array", (-1, -1, -1, 0)),
        },
        {"fusion_kind": ("String", "dot_epilogue_v1")},
    ],
    ids=str,
)
def test_hint_payloads_that_disagree(change):
    p, attrs = hinted()
    p.main.annotations[0].attrs = tuple(sorted((attrs | change).items()))
    assert verdict(p) == ["HintMismatch"]


def test_hint_bodies_that_are_no_copies():
    p, _ = hinted()
    p.main.annotations[0].body[1].operands = (p.main.params[0],)
    assert verdict(p) == ["HintMismatch"]
    p, _ = hinted()
    p.main.annotations[0].inputs = (Value(ty("f32", 4), "z"),)
    assert verdict(p) == ["HintMismatch"]


def test_hints_that_say_nothing_sensible():
    p, _ = hinted()
    p.main.annotations[0].kind = "Elementwise"
    assert verdict(p) == ["InvalidAttributeValue"]
    p, _ = hinted()
    p.main.annotations[0].policy = "Never"
    assert verdict(p) == ["InvalidAttributeValue"]
    p, _ = hinted()
    p.main.annotations[0].exports = p.main.annotations[0].inputs
    assert verdict(p) == ["HintMismatch"]
    p, _ = hinted()
    p.main.annotations.append(p.main.annotations[0])
    assert verdict(p) == ["HintMismatch"]


def test_a_hint_body_reads_its_inputs_and_itself_only():
    p, _ = hinted()
    p.main.annotations[0].inputs = ()
    assert verdict(p) == ["HintMismatch"]
    p, _ = hinted()
    p.main.annotations[0].body.reverse()
    assert verdict(p) == ["HintMismatch"]


@pytest.mark.parametrize("returned", [True, False])
def test_what_a_hint_computes_for_others_is_exported(returned):
    p, _ = hinted()
    inner = p.main.body[1].result
    if returned:
        p.main.results, p.main.result_types = [*p.main.results, inner], [*p.main.result_types, inner.type]
    else:
        p.main.body.append(Op(DIALECT.ops["neg"], (inner,), (), (Value(inner.type, "outside"),)))
    assert verdict(p) == ["HintMismatch"]
    p.main.annotations[0].exports += (inner,)
    p.main.annotations[0].attrs = ()
    assert verdict(p) == []


def test_a_kind_and_a_policy_that_there_are_not_are_told_both():
    p, _ = hinted()
    p.main.annotations[0].kind, p.main.annotations[0].policy = "Elementwise", "Never"
    assert verdict(p) == ["InvalidAttributeValue"] * 2


def dotted(**change):
    p, b = single_function(DIALECT)
    x, w, c = (b.param(ty("f32", *s)) for s in ((2, 3), (3, 4), (4,)))
    d = b.op("dot_general", x, w, contract_lhs=(1,), contract_rhs=(0,))
    wide = b.op("broadcast_to", c, result_shape=(2, 4))
    s = b.op("add", d, wide)
    b.results(s)
    attrs = {"fusion_kind": ("String", "dot_epilogue_v1"), "dot_add_input": ("I64", 2)}
    axes = {"dot_batch_lhs": (), "dot_batch_rhs": (), "dot_contract_lhs": (1,), "dot_contract_rhs": (0,)}
    attrs |= {k: ("I64Array", v) for k, v in axes.items()}
    body = [Op(op.defn, op.operands, op.attrs, op.results) for op in p.main.body]
    p.main.annotations.append(_hint("DotEpilogue", "Optional", (x, w, c), (s,), attrs | change, body))
    return p


def test_dot_hints():
    assert verdict(dotted()) == []
    assert verdict(dotted(dot_contract_lhs=("I64Array", (0,)))) == ["HintMismatch"]
    assert verdict(dotted(dot_add_input=("I64", 1))) == ["HintMismatch"]
    assert verdict(dotted(dot_add_input=("I64", 3))) == ["HintMismatch"]
    p = dotted()
    p.main.annotations[0].body.pop(0)
    assert verdict(p) == ["HintMismatch"]


def test_programs_built_in_python_are_checked_as_a_whole():
    p, b = single_function(DIALECT)
    x = b.param(ty("f32", 4))
    flag = b.param(ty("i1"))
    r = region("r0", [ty("f32", 4)], lambda b, a: [a])
    b.results(b.op("cond", flag, [x], regions=[r, r]))
    assert set(verdict(p)) == {"UnknownRegion"}
    p.regions.append(r)
    assert verdict(p) == []
    p.entry = "start"
    assert verdict(p) == ["UnknownFunction"]


def test_operands_of_a_hint_are_the_same_value_element_or_literal() -> None:
    t, u = tensor(F32, (2,)), tensor(F32, (3,))
    x, y = Value(t), Value(t)
    literals = [
        Literal(t, bytes(8)),
        Literal(t, b"abcdefgh"),
        Literal(t, None),
        Literal(u, None),
        Literal(t, bytes(4), splat=True),
    ]
    alike = [(x, x), (Element(x, 1), Element(x, 1)), *((z, Literal(z.type, z.data, z.splat)) for z in literals)]
    for a, b in alike:
        assert check.same_operand(a, b) and check.same_operand(b, a)
    apart = [(x, y), (Element(x, 0), Element(x, 1)), (Element(x, 0), Element(y, 0)), (x, Element(x, 0)), (x, literals[0])]
    for a, b in [*apart, *itertools.combinations(literals, 2)]:
        assert not check.same_operand(a, b) and not check.same_operand(b, a)
