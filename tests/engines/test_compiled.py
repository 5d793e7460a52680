"""Programs made ready once and called often."""

from __future__ import annotations

import functools
import operator
import tracemalloc

import numpy as np
import pytest

import ptir_tools
from ptir_tools import passes
from ptir_tools.core.arrays import numpy_dtype
from ptir_tools.core.builder import single_function
from ptir_tools.core.diagnostics import Diagnostics, Rejected, UsageError
from ptir_tools.core.dtypes import BF16, F16, F32, SI8, SI32
from ptir_tools.core.limits import LimitExceeded, Limits
from ptir_tools.core.types import sym, tensor
from ptir_tools.core.verify import verify
from ptir_tools.dialects import load_dialect
from ptir_tools.engines import native, thresholds
from ptir_tools.engines.compiled import LENDERS, Compiled
from ptir_tools.engines.numpy import frame
from tests import models

ENGINES = ["reference", "numpy", *["native"] * native.available()]


def scaled(shape):
    """exp(x) * y, and x."""
    program, b = single_function(load_dialect("ptir"))
    x, y = (b.param(tensor(F32, shape), name) for name in "xy")
    b.results(b.op("mul", b.op("exp", x), y, name="z"), x)
    assert verify(program, Diagnostics())
    return program


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("shape", [(3, 4), (200, 300)])
def test_every_call_sees_its_own_inputs(engine, shape):
    call = ptir_tools.compile(scaled(shape), engine=engine)
    rng = np.random.default_rng(0)
    kept = []
    for _ in range(4):
        x, y = (rng.standard_normal(shape).astype(np.float32) for _ in "xy")
        kept.append((call({"x": x, "y": y}), x, y))
        kept.append((call([y, x]), y, x))
    for found, x, y in kept:
        np.testing.assert_allclose(found["z"], np.exp(x) * y, rtol=1e-5)
        np.testing.assert_array_equal(found["x"], x)
        assert not any(np.may_share_memory(a, b) for a in found.values() for b in (x, y))


@pytest.mark.parametrize("shape", [(3, 4), (200, 300)])
def test_what_changes_in_an_array_is_seen(shape):
    call = ptir_tools.compile(scaled(shape), engine="numpy")
    x = np.zeros(shape, np.float32)
    assert call([x, x])["z"].max() == 0
    x += 1
    assert call([x, x])["z"].max() == pytest.approx(np.e, rel=1e-6)


@pytest.mark.parametrize("engine", ["numpy", *["native"] * native.available()])
def test_steps_are_built_once_and_once_more_when_an_array_is_another(engine, monkeypatch):
    call = ptir_tools.compile(scaled((200, 300)), engine=engine)
    arrays = [np.full((200, 300), n, np.float32) for n in range(4)]
    built = []
    bound = Compiled._bound
    monkeypatch.setattr(Compiled, "_bound", lambda self, arguments: built.append(1) or bound(self, arguments))
    for x, count in ((0, 1), (0, 1), (1, 2), (2, 2), (3, 2)):
        assert call([arrays[x], arrays[2]])["z"][0, 0] == pytest.approx(2 * np.exp(x), rel=1e-6)
        assert len(built) == count


@pytest.mark.parametrize("engine", ["numpy", *["native"] * native.available()])
@pytest.mark.parametrize("dtype", [F32, BF16, F16, SI8])
@pytest.mark.parametrize("height", [1, 2, 9, 40])
@pytest.mark.parametrize("turned", [False, True])
def test_constant_operands_of_products_are_rearranged_once(engine, dtype, height, turned):
    """Widened or packed when the steps are built, whatever lies between the constant and the product."""
    g = ptir_tools.Graph()
    x = g.input("x", dtype.name, ("N", 200))
    rng = np.random.default_rng(0)
    weights = rng.integers(-8, 8, (200, 70))
    w = g.constant((weights.T if turned else weights).astype(numpy_dtype(dtype)))
    w = w.transpose([1, 0]) if turned else w
    wide = {"accum_dtype": "si32", "out_dtype": "si32"} if dtype is SI8 else {}
    call = ptir_tools.compile(g.returns(x.dot_general(w, contract_lhs=[1], contract_rhs=[0], **wide)), engine=engine)
    for _ in range(3):
        given = np.zeros((height, 200), int)
        given[:, rng.integers(0, 200, 5)] = rng.integers(-1, 2, (height, 5))
        (found,) = call([given.astype(numpy_dtype(dtype))]).values()
        np.testing.assert_array_equal(found.astype(float), given @ weights)
    copied = [arguments[0].size for function, arguments in call.call.frame.steps if function is np.copyto]
    assert 200 * 70 not in copied


def test_a_program_without_inputs_is_built_once(monkeypatch):
    call = ptir_tools.compile(ptir_tools.read("func @f() -> tensor<f32, 2> {\n  return dense<1.0> : tensor<f32, 2>\n}\n"))
    call([])
    monkeypatch.setattr(Compiled, "_bound", None)
    assert call([]).popitem()[1].tolist() == [1, 1]


HANDED = """func @f(%x: tensor<f32, 200x300>) -> (tensor<f32, 200x300>, tensor<f32, 300x200>, tensor<f32, 200x300>,
  tensor<f32, 200x300>, tensor<f32, 200x300>, tensor<si32, 200x300>, tensor<f32, 204x300>, tensor<f32, 2>) {
  %k = constant() value[dense<1.5>] -> tensor<f32, 200x300>
  %e = exp(%x) -> tensor<f32, 200x300>
  %t = transpose(%e) perm[1, 0] -> tensor<f32, 300x200>
  %i = iota() axis[0] -> tensor<si32, 200x300>
  %p = pad(%e) low[1, 0] high[3, 0] interior[0, 0] pad_value[0.0] -> tensor<f32, 204x300>
  %s = slice(%x) starts[0, 0] sizes[1, 2] -> tensor<f32, 1x2>
  %r = reshape(%s) new_shape[2] -> tensor<f32, 2>
  return %e, %t, %e, %k, %x, %i, %p, %r
}
"""


@pytest.mark.parametrize("engine", ["numpy", *["native"] * native.available()])
@pytest.mark.parametrize("kept", [0, 1, 2, 5])
def test_results_belong_to_the_caller_who_may_write_into_them(engine, kept):
    """Views, constants, inputs and what is returned twice, too; whatever was written, the next call's are right."""
    program = ptir_tools.read(HANDED)
    call, had = ptir_tools.compile(program, engine=engine), []
    for n in range(8):
        x = np.full((200, 300), n / 8, np.float32)
        found = [*call([x]).values()]
        for a, wanted in zip(found, ptir_tools.run(program, [x], engine=engine).values(), strict=True):
            np.testing.assert_array_equal(a, wanted)
        others = [x, *(a for results in had for a in results)]
        for i, a in enumerate(found):
            assert not any(np.shares_memory(a, b) for b in (*others, *found[:i]))
            a.fill(77)
        had = [*had, found][-kept:] if kept else []
        assert all((a == 77).all() for results in had for a in results)


@pytest.mark.parametrize("name", sorted(models.MODULES))
def test_what_is_written_into_the_results_of_a_model_is_gone_in_the_next_call(name, monkeypatch):
    monkeypatch.setattr(thresholds.at, "lent", 0)
    call, arrays = ptir_tools.compile(models.program(name)), models.inputs(name)
    given = [arrays[p.name] for p in models.program(name).main.params]
    first = [a.copy() for a in call(given).values()]
    for _ in range(3):
        found = [*call(given).values()]
        for a, wanted in zip(found, first, strict=True):
            np.testing.assert_array_equal(a, wanted)
            a.view(np.uint8).fill(255)
        del a, found


@pytest.mark.parametrize("engine", ["numpy", *["native"] * native.available()])
def test_a_result_that_nobody_has_is_written_over(engine):
    """A loop that keeps the last result has two in turn, and a call allocates none."""
    call = ptir_tools.compile(scaled((500, 300)), engine=engine)
    x = np.ones((500, 300), np.float32)
    places = set()
    found = call([x, x])
    for _ in range(3):
        found = call([x, x])
    tracemalloc.start()
    try:
        for _ in range(4):
            found = call([x, x])
            places |= {a.ctypes.data for a in found.values()}
        assert tracemalloc.get_traced_memory()[1] < x.nbytes / 2
    finally:
        tracemalloc.stop()
    assert len(places) == 4


@pytest.mark.parametrize("see", [lambda a: a[1:2, 3], lambda a: memoryview(a), lambda a: a.view(np.matrix).T, lambda a: a.flat])
def test_a_view_of_a_result_keeps_it(see):
    call = ptir_tools.compile(scaled((200, 300)))
    ones = np.ones((200, 300), np.float32)
    seen = [see(call([np.full((200, 300), n, np.float32), ones])["x"]) for n in range(6)]
    assert [np.array(v).reshape(-1)[0] for v in seen] == [*range(6)]
    assert [np.array(v).reshape(-1)[-1] for v in seen] == [*range(6)]


def test_results_are_written_over_when_asked_for():
    call = ptir_tools.compile(scaled((2,)), engine="numpy", reuse=True)
    first = call([np.zeros(2, np.float32), np.ones(2, np.float32)])["z"]
    assert first.tolist() == [1, 1]
    assert call([np.zeros(2, np.float32), np.zeros(2, np.float32)])["z"] is first
    assert first.tolist() == [0, 0]


@pytest.mark.parametrize("engine", ENGINES)
def test_another_shape_is_made_ready_anew(engine):
    call = ptir_tools.compile(scaled((sym("N"),)), engine=engine)
    for n in (3, 5, 5, 3):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_allclose(call([x, x])["z"], np.exp(x) * x, rtol=1e-6)
    with pytest.raises(Rejected):
        call([np.zeros(3, np.float32), np.zeros(4, np.float32)])


def test_errors_are_those_of_run():
    program, b = single_function(load_dialect("ptir"))
    x, i = b.param(tensor(F32, (4,)), "x"), b.param(tensor(SI32, (1,)), "i")
    b.results(b.op("take", x, i))
    call = ptir_tools.compile(program)
    data = np.zeros(4, np.float32)
    with pytest.raises(UsageError, match="no input"):
        call({"x": data})
    with pytest.raises(Rejected) as caught:
        call([data, np.array([7], np.int32)])
    assert caught.value.diagnostics[0].code == "GatherIndexOutOfBounds"
    assert call([data, np.array([3], np.int32)])
    with pytest.raises(LimitExceeded):
        ptir_tools.compile(program, limits=Limits(memory=1))([data, np.array([3], np.int32)])


def test_random_numbers_are_those_of_run():
    program = ptir_tools.read("func @f() -> tensor<f32, 5> {\n  %x = rng_uniform() -> tensor<f32, 5>\n  return %x\n}\n")
    call = ptir_tools.compile(program, seed=3)
    expected = ptir_tools.run(program, [], seed=3)["x"]
    assert call([])["x"].tolist() == call([])["x"].tolist() == expected.tolist()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_call_looks_at_inputs_that_are_not_like_those_before(engine):
    """After a call that was right: other strides, an address between floats; a wrong dtype or name."""
    call = ptir_tools.compile(scaled((3, 4)), engine=engine)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    right = call({"x": x, "y": x})["z"]
    unaligned = np.frombuffer(b"." + x.tobytes(), np.float32, offset=1).reshape(3, 4)
    for other in (np.asfortranarray(x), x[::1], unaligned):
        np.testing.assert_array_equal(call({"x": other, "y": x})["z"], right)
        np.testing.assert_array_equal(call({"y": other, "x": x})["z"], right)
    for wrong in ({"x": x.astype(np.float64), "y": x}, {"x": x, "z": x}, {"x": x}, {}, {"x": x, "y": x, "z": x}):
        with pytest.raises(UsageError):
            call(wrong)
    np.testing.assert_array_equal(call({"x": x, "y": x})["z"], right)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_call_after_one_that_failed(engine):
    """Errors name the op each time, and a run in between is right."""
    program, b = single_function(load_dialect("ptir"))
    x, i = b.param(tensor(F32, (4,)), "x"), b.param(tensor(SI32, (1,)), "i")
    b.results(b.op("take", x, i, name="y"))
    call, data = ptir_tools.compile(program, engine=engine), np.arange(4, dtype=np.float32)
    for _ in range(2):
        assert call({"x": data, "i": np.array([2], np.int32)})["y"].tolist() == [2]
        with pytest.raises(Rejected) as caught:
            call({"x": data, "i": np.array([4], np.int32)})
        assert [d.code for d in caught.value.diagnostics] == ["GatherIndexOutOfBounds"]


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
@pytest.mark.parametrize("engine", ENGINES[1:])
def test_a_session_whose_first_call_failed_goes_on(
    engine: str, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    g = ptir_tools.Graph()
    session = ptir_tools.compile(g.returns((g.input("x", "f32", (300, 300)).tanh() + 1.0).named("y")), engine=engine)
    x, first, aligned = np.ones((300, 300), np.float32), True, frame.aligned

    def failing(size: int) -> np.ndarray:
        nonlocal first
        if first:
            first = False
            raise error
        return aligned(size)

    monkeypatch.setattr(frame, "aligned", failing)
    with pytest.raises(error):
        session({"x": x})
    for _ in range(2):
        np.testing.assert_allclose(session({"x": x})["y"], np.tanh(1) + 1, rtol=1e-6)


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("engine", ENGINES[1:])
def test_a_session_has_one_arena_though_inputs_change(engine: str) -> None:
    """When an input is another array than before, steps are built anew, and what they had is free before."""
    shape = (1024, 1024)
    g = ptir_tools.Graph()
    h = g.input("x", "f32", shape)
    kept = [(h + float(i)).transpose([1, 0]) @ h for i in range(4)]
    session = ptir_tools.compile(g.returns(functools.reduce(operator.add, kept).reduce_sum([0]).named("y")), engine=engine)
    inputs = [np.ones(shape, np.float32) for _ in range(2)]
    session({"x": inputs[0]})
    took = session.executable.own.peak + session.executable.scratch
    session = ptir_tools.compile(session.program, engine=engine)
    tracemalloc.start()
    try:
        session({"x": inputs[0]})
        tracemalloc.reset_peak()
        session({"x": inputs[1]})
        assert tracemalloc.get_traced_memory()[1] <= took + inputs[1].nbytes + (1 << 20)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("engine", ENGINES[1:])
def test_a_caller_that_keeps_all_results_gets_copies(engine: str) -> None:
    """Of two calls results are lent, which are written again once they are free; of more they are copied, and the session keeps
    one set."""
    g = ptir_tools.Graph()
    session = ptir_tools.compile(g.returns((g.input("x", "f32", (200, 200)) * 2.0).named("y")), engine=engine)
    kept = []
    for i in range(6):
        kept.append(session({"x": np.full((200, 200), i, np.float32)})["y"])
        assert len(session.lenders) <= LENDERS
    assert [len(set(map(float, y.reshape(-1)))) for y in kept] == [1] * 6
    assert [float(y[0, 0]) for y in kept] == [0, 2, 4, 6, 8, 10]
    assert len(session.lenders) == 1 and not session.lenders[0].owners
    again = ptir_tools.compile(session.program, engine=engine)
    places = {again({"x": np.full((200, 200), i, np.float32)})["y"].__array_interface__["data"][0] for i in range(6)}
    assert len(places) <= LENDERS and again.lenders[0].owners


def test_preparing_does_not_compare_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """To look for edits without a rewriter takes a tenth of the time to a first result, and nothing reads the answer."""
    monkeypatch.setattr(passes, "_state", None)
    text = "func @f(%x: tensor<f32, 2>) -> tensor<f32, 2> {\n  %y = exp(%x) -> tensor<f32, 2>\n  return %y\n}\n"
    assert list(ptir_tools.compile(ptir_tools.read(text))([np.zeros(2, np.float32)])["y"]) == [1.0, 1.0]
