"""`run`: what it takes, names and refuses; observers; time limits."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import ptir_tools
from ptir_tools.core.builder import single_function
from ptir_tools.core.diagnostics import Diagnostics, Rejected, UsageError
from ptir_tools.core.dtypes import F32, I1, SI32
from ptir_tools.core.evaluate import Context
from ptir_tools.core.ir import Element
from ptir_tools.core.limits import LimitExceeded, Limits, using
from ptir_tools.core.types import sym, tensor, tuple_of
from ptir_tools.core.verify import verify
from ptir_tools.dialects import load_dialect
from ptir_tools.engines import RunOptions, choose, native, run
from ptir_tools.engines.inputs import random_inputs
from ptir_tools.engines.native import fusion, lowering, tiles
from ptir_tools.engines.numpy import frame
from ptir_tools.engines.signature import signature
from ptir_tools.passes import PassContext
from tests.engines.programs import FAST, build


def test_outputs_have_the_names_of_the_contract():
    program, b, (x,) = build((F32, (4,)))
    t = b.op("top_k", x, k=2, name="t")
    y = b.op("neg", x, name="y")
    b.results(y, y, Element(t, 0), t)
    assert list(run(program, [np.zeros(4, np.float32)])) == ["y", "y_1", "t.0", "t.0_1", "t.1"]


def test_an_input_is_where_the_text_declares_it():
    """By its own statement in MIND and Tiny, by the function in PTIR; each leaf of a tuple at its parameter."""
    lines = ["%0 = Input {name=b} : tensor<f32[2]>", "%1 = Input {name=a} : tensor<f32[2]>", "%2 = Add (%0, %1) : tensor<f32[2]>"]
    node = '{"id": "ID", "uop": "INPUT", "arg": {"tensor_id": "ID", "dtype": "fp32", "shape": [2]}}'
    nodes = [node.replace("ID", n) for n in "ba"]
    graph = ",\n".join([*nodes, '{"id": "y", "uop": "ADD", "src": ["b", "a"]}'])
    function = "\nfunc @f(%b: (tensor<f32>, tensor<f32>),\n%a: tensor<f32>) -> tensor<f32> {\nreturn %a\n}\n"
    for text, wanted in (
        ("\n".join([*lines, "outputs: %2\n"]), {"b": (1, lines[0]), "a": (2, lines[1])}),
        ('{"uops": [\n' + graph + "\n]}", {"b": (2, nodes[0]), "a": (3, nodes[1])}),
        (function, {"b.0": (2, function), "b.1": (2, function), "a": (2, function)}),
    ):
        program = ptir_tools.read(text)
        ports = signature(program)
        spans = [program.source.span(p.loc) for p in ports]
        assert [p.name for p in ports] == list(wanted)
        for port, span in zip(ports, spans, strict=True):
            line, declared = wanted[port.name]
            assert program.source.position(span.start)[0] == line
            assert program.source.text[span.start : span.end] in declared


def test_a_missing_input_is_named_with_its_type():
    program, b, (x, y) = build((F32, (4,)), (SI32, (2, 3)))
    b.results(x, y)
    with pytest.raises(UsageError, match=r"`p1`: tensor<si32, 2x3>"):
        run(program, {"p0": np.zeros(4, np.float32)})


@pytest.mark.parametrize("array", [np.zeros(4), np.zeros(5, np.float32), np.zeros((4, 1), np.float32)])
def test_an_input_has_the_exact_dtype_and_shape(array):
    program, b, (x,) = build((F32, (4,)))
    b.results(x)
    with pytest.raises(UsageError, match="`p0` is tensor<f32, 4>"):
        run(program, {"p0": array})
    with pytest.raises(UsageError, match="no parameter is called `q`"):
        run(program, {"p0": np.zeros(4, np.float32), "q": array})


@pytest.mark.parametrize("engine", ["reference", *FAST])
def test_inputs_of_any_layout_are_read_and_never_written(engine):
    program, b, (x, y) = build((F32, (6, 4)), (F32, (24,)))
    z = b.op("exp", b.op("add", b.op("reshape", x, new_shape=(24,)), y))
    b.results(z, x, y)
    wide = np.arange(96, dtype=np.float32).reshape(8, 12)[::2, ::2] / 100
    given = [wide.T, np.arange(24, dtype=np.float32).view(np.dtype("f4").newbyteorder("<"))]
    for a in given:
        a.flags.writeable = False
    found = list(run(program, given, RunOptions(engine=engine)).values())
    exact = np.exp(given[0].astype(float).reshape(24) + given[1].astype(float))
    np.testing.assert_allclose(found[0], exact, rtol=1e-5)
    np.testing.assert_array_equal(found[1], given[0])
    if engine != "reference":
        assert all(a.flags.writeable and not np.may_share_memory(a, g) for a, g in zip(found[1:], given, strict=True))


def test_engines_and_algorithms_that_are_not_there():
    program, b, (x,) = build((F32, (4,)))
    b.results(b.op("neg", x))
    assert ptir_tools.plan(program, method="exact").functions["main"].proved
    with pytest.raises(UsageError, match=r"no engine `cuda` \(there are: auto, reference, numpy, native"):
        ptir_tools.run(program, [np.zeros(4, np.float32)], engine="cuda")
    with pytest.raises(UsageError, match=r"no order `sorted` \(there are: sequential, adversarial, random"):
        RunOptions(order="sorted")
    with pytest.raises(UsageError, match="algorithm `best` is none of auto, greedy, quick, exact"):
        ptir_tools.plan(program, method="best")


def test_symbols_come_from_the_inputs_and_must_agree():
    program, b = single_function(load_dialect("ptir"))
    x, y = (b.param(tensor(F32, (sym("N"),)), name) for name in "xy")
    b.results(b.op("add", x, y))
    assert verify(program, Diagnostics())
    one, two = np.ones(3, np.float32), np.ones(4, np.float32)
    assert run(program, [one, one])
    with pytest.raises(Rejected) as caught:
        run(program, [one, two])
    assert caught.value.diagnostics[0].code == "DynamicDimensionMismatch"
    assert program.main.params[0].type is tensor(F32, (sym("N"),))


@pytest.mark.parametrize("engine", ["reference", *FAST])
def test_memory_is_refused_before_it_is_taken(engine):
    program, b = single_function(load_dialect("ptir"))
    x = b.param(tensor(F32, ()), "x")
    big = b.op("broadcast_to", x, result_shape=(10**9, 10**9))
    b.results(b.op("reduce_sum", b.op("exp", big), axes=(0, 1)))
    with pytest.raises(LimitExceeded, match="EiB"):
        run(program, [np.float32(1)], RunOptions(engine=engine))


@pytest.mark.parametrize("engine", ["reference", *FAST])
def test_a_runtime_error_is_a_diagnostic_of_the_op(engine):
    program, b, (x, i) = build((F32, (4, 2)), (SI32, (3,)))
    b.loc = 7 << 24 | 5
    b.results(b.op("take", x, i))
    with pytest.raises(Rejected) as caught:
        run(program, [np.zeros((4, 2), np.float32), np.array([0, 4, 1], np.int32)], RunOptions(engine=engine))
    assert caught.value.diagnostics[0].code == "GatherIndexOutOfBounds"
    program, b, (x, y) = build((SI32, (2,)), (SI32, (2,)))
    b.results(b.op("div", x, y))
    with pytest.raises(Rejected) as caught:
        run(program, [np.ones(2, np.int32), np.zeros(2, np.int32)], RunOptions(engine=engine))
    assert caught.value.diagnostics[0].code == "IntegerDivideByZero"


@pytest.mark.parametrize("engine", ["reference", *FAST])
def test_payloads_that_are_missing_are_told_at_their_ops(engine):
    program = ptir_tools.read(
        "func @f(%x: tensor<f32, 2>) -> tensor<f32, 2> {\n  %c = constant() value[dense<?>] -> tensor<f32, 2>\n"
        "  %y = add(%x, dense<?> : tensor<f32, 2>) -> tensor<f32, 2>\n  return %y\n}\n"
    )
    with pytest.raises(Rejected) as caught:
        run(program, {"x": np.zeros(2, np.float32)}, RunOptions(engine=engine))
    assert [(d.code, d.where[1]) for d in caught.value.diagnostics] == [("MissingPayload", 2), ("MissingPayload", 3)]


@pytest.mark.parametrize("engine", ["reference", *FAST])
def test_an_observer_sees_every_op_as_written(engine):
    program, b, (x,) = build((F32, (4,)))
    b.results(b.op("sub", b.op("exp", b.op("add", x, x)), x))
    seen, times = [], []
    options = RunOptions(
        engine=engine,
        observe=lambda op, r: seen.append((op.name, r[0].sum())),
        timer=lambda ops, start, end: times.append(end - start),
    )
    run(program, [np.ones(4, np.float32)], options)
    assert [name for name, _ in seen] == ["ptir.add", "ptir.exp", "ptir.sub"]
    assert seen[0][1] == 8
    assert len(times) == 3 and min(times) >= 0
    with pytest.raises(LimitExceeded, match="stopped after"):
        run(program, [np.ones(4, np.float32)], RunOptions(engine=engine, timeout=0))


def test_tuple_parameters_are_given_leaf_by_leaf():
    program, b = single_function(load_dialect("ptir"))
    t = b.param(tuple_of([tensor(F32, (2,)), tensor(I1, ())]), "t")
    b.results(b.op("neg", Element(t, 0), name="y"), Element(t, 1))
    inputs = {"t.0": np.ones(2, np.float32), "t.1": np.array(True)}
    for engine in ["reference", *FAST]:
        assert [a.tolist() for a in run(program, inputs, RunOptions(engine=engine)).values()] == [[-1, -1], True]


ENDLESS = """program @main (spec_version = ptir.v0.4) {
  func @main(%x: tensor<f32>) -> tensor<f32> {
    %y = while(%x) cond_region[^r0] body_region[^r1] -> tensor<f32>
    return %y
  }
  region ^r0(%a: tensor<f32>) -> (tensor<i1>, tensor<f32>) {
    %t = compare_eq(%a, %a) -> tensor<i1>
    return %t, %a
  }
  region ^r1(%a: tensor<f32>) -> tensor<f32> {
    %n = neg(%a) -> tensor<f32>
    return %n
  }
}
"""


@pytest.mark.parametrize("engine", ["reference", *FAST])
def test_the_time_limit_holds_inside_loops(engine):
    options = RunOptions(engine=engine, timeout=0.2, limits=Limits(iterations=10**9))
    with pytest.raises(LimitExceeded, match=r"0\.2 s"):
        run(ptir_tools.read(ENDLESS), [np.ones((), np.float32)], options)


def test_the_time_limit_holds_inside_loops_of_pto():
    text = """module {
  func.func @f(%n: index) {
    %c0 = pto.constant 0 : index
    %c1 = pto.constant 1 : index
    scf.for %i = %c0 to %n step %c1 {
      %d = arith.addi %i, %c1 : index
    }
    return
  }
}
"""
    options = RunOptions(timeout=0.2, limits=Limits(iterations=10**12))
    with pytest.raises(LimitExceeded, match=r"0\.2 s"):
        run(ptir_tools.read(text), [np.array(10**11)], options)


@pytest.mark.skipif(not native.available(), reason="no C compiler at installation (with one, .ci/run fails)")
def test_a_first_call_clones_partitions_and_builds_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several fusion groups that want scratch memory: they are not found, nor built, a second time."""
    made: Counter[str] = Counter()

    def count(name: str, *owners: object) -> None:
        was = getattr(owners[0], name)
        for owner in owners:
            monkeypatch.setattr(owner, name, lambda *given: (made.update([name]), was(*given))[1])

    count("clone", choose)
    count("partition", fusion)
    count("lowered", lowering, tiles)
    count("__init__", frame.Frame)
    g = ptir_tools.Graph()
    x, y = g.input("x", "f32", (4,)), g.input("y", "f32", (4,))
    total = x
    for _ in range(300):
        total = total + y
    out = ptir_tools.run(g.returns(total.named("z")), [np.zeros(4, np.float32), np.ones(4, np.float32)], engine="native")
    assert np.array_equal(out["z"], np.full(4, 300))
    assert made == {"clone": 1, "partition": 1, "__init__": 1, "lowered": 3}


def test_options_without_limits_take_those_in_force() -> None:
    few = Limits(iterations=3, memory=8)
    with using(few):
        assert all(x.limits is few for x in (RunOptions(), Context(), PassContext()))
        with pytest.raises(LimitExceeded):
            random_inputs(build((F32, (100,)))[0])
