"""Loops and branches as one call of kernels: the same results, and no Python between the steps."""

from __future__ import annotations

import signal
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ptir_tools as ptir
from ptir_tools.core.diagnostics import Diagnostics, Rejected
from ptir_tools.core.evaluate import Context
from ptir_tools.core.limits import LimitExceeded, Limits
from ptir_tools.core.verify import verify
from ptir_tools.engines import RunOptions, compare, native, run
from ptir_tools.engines.choose import prepare
from ptir_tools.engines.inputs import random_inputs
from ptir_tools.engines.native import tasks
from ptir_tools.engines.native.library import kernels
from ptir_tools.engines.numpy import control
from tests.engines.programs import agree
from tests.ptir.loop_programs import Loops
from tests.ptir.programs import regions

pytestmark = pytest.mark.skipif(not native.available(), reason="no C compiler at installation (with one, .ci/run fails)")
ON_NATIVE = RunOptions(engine="native")


@pytest.fixture
def python_steps(monkeypatch):
    """The steps that are no tasks, in all blocks that run."""
    found = []

    def linked(steps):
        made = tasks.linked(steps)
        found.extend(step for step, _ in made if type(step[0]) is not type(kernels().task("several", (), 1)))
        return made

    monkeypatch.setattr(native, "tasks", type("Tasks", (), {"linked": staticmethod(linked)}))
    return found


def scanned(n):
    g = ptir.Graph()
    c, x = g.input("c", "f32", (5,)), g.input("x", "f32", (n, 5))

    def body(c, x):
        y = (c * 0.5 + x).tanh()
        return y, y * 2.0, c

    return g.returns(*(x.named(f"y{i}") for i, x in enumerate(g.scan([c], [x], body))))


def counted(n):
    """Two carries that change places while a counter goes up."""
    g = ptir.Graph()
    i, x, y = g.input("i", "si32"), g.input("x", "f32", (3, 7)), g.input("y", "f32", (3, 7))

    def body(i, x, y):
        return i + 1, y * 0.5, x + 1.0

    done = g.while_([i, x, y], lambda i, x, y: (i < n, i, x, y), body)
    return g.returns(*(x.named(f"y{i}") for i, x in enumerate(done)))


@pytest.mark.parametrize("n", [0, 1, 2, 100])
def test_scans_run_without_python(n, python_steps):
    agree(scanned(n), engines=["native"])
    assert python_steps == []


@pytest.mark.parametrize("n", [-5, 0, 1, 7])
def test_loops_run_without_python(n, python_steps):
    program = counted(n)
    rng = np.random.default_rng(0)
    inputs = {"i": np.array(0, np.int32), **{k: rng.standard_normal((3, 7)).astype(np.float32) for k in "xy"}}
    i, x, y = 0, inputs["x"], inputs["y"]
    while i < n:
        i, x, y = i + 1, y * np.float32(0.5), x + np.float32(1)
    found = run(program, inputs, ON_NATIVE)
    for got, wanted in zip(found.values(), (i, x, y), strict=True):
        np.testing.assert_array_equal(got, wanted)
    assert python_steps == []


@pytest.mark.parametrize("model", ["gpt2_greedy", "gpt2_cached"])
def test_decoding_runs_without_python(model, python_steps):
    program = ptir.read(f"testdata/models/{model}.ptir")
    inputs = random_inputs(program, 0)
    expected, bounds = compare.reference_outputs(program, inputs, RunOptions())
    for threads in (1, 2):
        found = run(program, inputs, RunOptions(engine="native", threads=threads))
        assert compare.compare(expected, found, bounds) == []
    assert python_steps == []


@settings(max_examples=40, deadline=None)
@given(st.booleans(), st.integers(0, 10**6))
def test_random_loops_and_branches(grown, seed):
    """One call and step by step: the same bits."""
    program = regions(seed) if grown else Loops(seed, draws=False).program
    if not verify(program, Diagnostics()):
        return
    inputs = random_inputs(program, seed)
    slowly = RunOptions(engine="native", timeout=1000.0)  # which looks at the clock between steps
    try:
        expected = run(program, inputs, slowly)
    except (Rejected, LimitExceeded) as stepwise:
        with pytest.raises(type(stepwise)) as at_once:
            run(program, inputs, ON_NATIVE)
        assert str(at_once.value) == str(stepwise)
        return
    found = run(program, inputs, ON_NATIVE)
    for name, x in expected.items():
        exact = np.float32 if x.dtype.kind == "V" else x.dtype  # NaNs of ml_dtypes are not equal in NumPy's tests
        np.testing.assert_array_equal(found[name].astype(exact), x.astype(exact))


def endless():
    g = ptir.Graph()
    i = g.input("i", "si32")
    return g.returns(g.while_([i], lambda i: (i < 10, i), lambda i: 1 - i).named("y"))


@pytest.mark.parametrize("limit", [0, 1, 5000])
def test_the_number_of_iterations_is_limited(limit):
    options = RunOptions(engine="native", limits=Limits(iterations=limit))
    with pytest.raises(LimitExceeded, match=f"ran {limit} times"):
        run(endless(), [np.array(0, np.int32)], options)
    g = ptir.Graph()
    i = g.input("i", "si32")
    program = g.returns(g.while_([i], lambda i: (i < limit, i), lambda i: i + 1).named("y"))
    (found,) = run(program, [np.array(0, np.int32)], options).values()
    assert found == limit


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer that sends a signal")
def test_endless_loops_answer_signals():
    class Alarm(Exception):
        pass

    def ring(*_):
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        start = time.process_time()
        with pytest.raises(Alarm):
            run(endless(), [np.array(0, np.int32)], RunOptions(engine="native", limits=Limits(iterations=10**12)))
        assert time.process_time() - start < 5
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def looked_up(n):
    g = ptir.Graph()
    table, i = g.input("table", "f32", (4, 3)), g.input("i", "si32")

    def body(i, table, total):
        return i + 1, table, total + table.take(i.reshape([1])).reshape([3])

    zero = g.constant(np.zeros(3, np.float32))
    done = g.while_([i, table, zero], lambda i, table, total: (i < n, i, table, total), body)
    return g.returns(done[2].named("y"))


def test_a_row_that_is_not_there_is_reported_from_inside_a_loop(python_steps):
    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    (found,) = run(looked_up(4), [table, np.array(1, np.int32)], ON_NATIVE).values()
    np.testing.assert_array_equal(found, table[1:].sum(0))
    messages = []
    for engine in ("reference", "numpy", "native"):
        with pytest.raises(Rejected) as error:
            run(looked_up(6), [table, np.array(1, np.int32)], RunOptions(engine=engine))
        messages.append(str(error.value))
    assert python_steps == [] and len(set(messages)) == 1


DTYPES = [np.dtype(c) for c in "bBhHiIqQ?"]
BINARY = ["add", "subtract", "multiply", "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor"]
BINARY += ["less", "less_equal", "equal", "not_equal", "greater", "greater_equal", "logical_and", "logical_or", "logical_xor"]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_operations_on_integers_are_those_of_numpy(dtype, name):
    if dtype.kind == "b" and name in ("subtract", "add", "multiply"):
        return
    for shape in ((), (0,), (1,), (67,), (3, 65), (2, 1, 5)):
        rng = np.random.default_rng(0)
        edges = [0, 1] if dtype.kind == "b" else [0, 1, np.iinfo(dtype).min, np.iinfo(dtype).max]
        x, y = (np.array(rng.integers(edges[-2], edges[-1], shape, dtype, endpoint=True)) for _ in range(2))
        for a in (x, y):
            a[rng.random(shape) < 0.3] = rng.choice(np.array(edges, dtype))
        wanted = getattr(np, name)(x, y)
        out = np.empty(shape, wanted.dtype)
        task = tasks._integers(name, x, y, out)
        ordered = ("less", "less_equal", "greater", "greater_equal", "maximum", "minimum")
        assert (task is None) == (dtype == np.uint64 and name in ordered)
        if task is not None:
            task()
            np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.kind != "b"], ids=str)
@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "bitwise_xor"])
@pytest.mark.parametrize("ones", [(0,), (1,), (0, 1)])
def test_operations_on_integers_with_one_number(dtype, name, ones):
    ends, rng = np.iinfo(dtype), np.random.default_rng(0)
    given = [rng.integers(ends.min, ends.max, () if i in ones else (3, 65), dtype, endpoint=True) for i in range(2)]
    out = np.empty((3, 65), dtype)
    with np.errstate(over="ignore"):
        wanted = np.broadcast_to(getattr(np, name)(*map(np.asarray, given)), out.shape)
    tasks._integers(name, *(np.broadcast_to(x, out.shape) for x in given), out)()
    np.testing.assert_array_equal(out, wanted)
    if not ones[1:]:  # the result may be an operand
        mine = given[1 - ones[0]].copy()
        pair = [np.broadcast_to(given[i], out.shape) if i in ones else mine for i in range(2)]
        tasks._integers(name, *pair, mine)()
        np.testing.assert_array_equal(mine, wanted)


@pytest.mark.parametrize("source", DTYPES, ids=str)
@pytest.mark.parametrize("target", [*DTYPES, np.dtype("f"), np.dtype("d")], ids=str)
def test_copies_of_integers_to_other_dtypes(source, target):
    x = np.arange(-70, 70).astype(source)[::2]
    x[:3] = 1 if source.kind == "b" else (np.iinfo(source).min, np.iinfo(source).max, np.iinfo(source).max - 70)
    out = np.empty(x.shape, target)
    task = tasks._integers("copyto", x, out)
    assert (task is None) == (source == np.uint64 and target.kind == "f")
    if task is not None:
        task()
        np.testing.assert_array_equal(out, x.astype(target))


@pytest.mark.parametrize("source", "fd")
@pytest.mark.parametrize("target", DTYPES[:-1], ids=str)
def test_floats_are_truncated_and_kept_in_range(source, target):
    ends = [int(np.iinfo(target).min), int(np.iinfo(target).max)]
    near = [np.nextafter(np.dtype(source).type(e), way) for e in ends for way in (-np.inf, np.inf)]
    x = np.array([*near, *ends, np.nan, np.inf, -np.inf, 0.9, -0.9, -0.0, 1.5, -1.5, 126.99, 1e30, -1e30], source)
    out = np.empty(x.shape, target)
    tasks._truncated(x, out, None)()
    assert out.tolist() == [0 if np.isnan(v) else max(ends[0], min(ends[1], int(np.clip(v, -1e30, 1e30)))) for v in x]


def test_ops_on_numbers_need_no_python_in_a_loop(python_steps):
    """As in a step that is quantized by its range; the numbers are those of NumPy."""
    g = ptir.Graph()
    x = g.input("x", "f32", (50, 7))

    def body(total, row):
        scale = (row.reduce_max([0]) - row.reduce_min([0]).minimum(0.0)) / 255.0
        scale = scale.compare_eq(0.0).select(1.0, scale)
        steps = (row / scale.broadcast_to([7])).round_even().cast("ui8")
        return total + scale, steps.bitcast("si8").cast("f32")

    done = g.scan([g.constant(np.float32(0))], [x], body)
    program = g.returns(done[0], done[1])
    given = np.random.default_rng(0).uniform(-1, 3, (50, 7)).astype(np.float32)
    total, made = run(program, [given], ON_NATIVE).values()
    scale = (given.max(1) - np.minimum(given.min(1), 0)) / np.float32(255)
    with np.errstate(invalid="ignore"):
        wanted = np.clip(np.rint(given / scale[:, None]), 0, 255).astype(np.uint8).view(np.int8).astype(np.float32)
    np.testing.assert_array_equal(made, wanted)
    np.testing.assert_allclose(total, scale.sum(), rtol=1e-5)
    assert python_steps == []


@pytest.mark.parametrize("starts", ["bHilqQ"])
def test_windows_are_moved_into_the_array(starts):
    x = np.arange(5 * 7, dtype=np.float32).reshape(5, 7)
    for code in starts:
        for start in ((0, 0), (1, 3), (4, 4), (100, 100), *([(-1, -100), (-3, 2)] if code.islower() else [])):
            at = [max(0, min(s, n)) for s, n in zip(start, (3, 4), strict=True)]
            wanted = x[at[0] : at[0] + 2, at[1] : at[1] + 3]
            out, whole = np.empty((2, 3), np.float32), np.zeros((7, 5), np.float32).T
            tasks._read(x, np.array(start, code), (2, 3), out)()
            np.testing.assert_array_equal(out, wanted)
            tasks._written(whole, wanted, np.array(start, code), (2, 3))()
            np.testing.assert_array_equal(whole[at[0] : at[0] + 2, at[1] : at[1] + 3], wanted)
            assert np.count_nonzero(whole) == np.count_nonzero(wanted)


@pytest.mark.parametrize("n", [1, 5, 16, 63, 64, 65, 200])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_the_largest_is_that_of_numpy(n, dtype):
    rng = np.random.default_rng(n)
    for values in ([0, -0.0], [-np.inf], [1, 2, 3], [np.nan, 1], [np.inf, -np.inf, np.nan], None):
        x = rng.standard_normal((9, n)).astype(np.float32) if values is None else rng.choice(np.float32(values), (9, n))
        out = np.empty(9, dtype)
        kernels().largest(out, x)
        np.testing.assert_array_equal(out, np.argmax(x, 1))


def test_control_is_checked_when_it_is_made():
    task, x = kernels().task, np.zeros((3, 4), np.uint32)
    nothing = task("several", (), 1)
    flag = np.array(True)
    for name, arguments in (
        ("branch", (flag, (nothing,))),
        ("branch", (flag[None], (nothing, nothing))),
        ("branch", (flag.view(np.uint8), (nothing, nothing))),
        ("branch", (flag, (nothing, None))),
        ("branch", (flag, [nothing, nothing])),
        ("repeat", (flag, (nothing,), 1, None)),
        ("repeat", (flag, (nothing, nothing), -1, None)),
        ("walk", ((nothing, nothing), (), ())),
        ("walk", ((nothing, nothing), ((x[0], x[:, :3]),), ())),
        ("walk", ((nothing, nothing), ((x[0], x), (x[0], x[:2])), ())),
        ("walk", ((nothing, nothing), (x, x), ())),
        ("walk", ((nothing,), ((x[0], x),), ())),
        ("inside", (x[0], -1, None)),
        ("inside", (x, 1, None)),
        ("window", (x, x[:2], x[0], True)),
        ("window", (x, np.zeros((4, 4), np.uint32), x[0, :2], True)),
        ("integers", (x, x[0], x, 0)),
        ("integers", (x, x, x, 99)),
        ("largest", (x[0].view(np.int32), np.zeros((4, 0), np.float32))),
    ):
        with pytest.raises((ValueError, TypeError, OverflowError, BufferError)):
            task(name, *arguments)


def test_a_refusal_that_does_not_raise_is_an_error():
    with pytest.raises(ValueError, match="refused"):
        kernels().task("inside", np.array([3]), 3, lambda: None)()


def test_carried_state_is_copied_once():
    """What the test of a loop hands on is where the body reads it; only what the body makes is copied."""
    g = ptir.Graph()
    i, x = g.input("i", "si32"), g.input("x", "f32", (300, 1000))
    program = g.returns(g.while_([i, x], lambda i, x: (i < 3, i, x), lambda i, x: (i + 1, x * 0.5))[1].named("y"))
    for engine in ("numpy", "native"):
        executable = prepare(program, RunOptions(engine=engine), Diagnostics())
        arguments = [np.array(0, np.int32), np.ones((300, 1000), np.float32)]
        bound = executable.bind(arguments)
        (loop,) = [step for step in bound.frame.steps if step[0] is control.loop]
        test, body = loop[1][1:3]
        assert all(a is b for a, b in zip(body.parameters, test.parameters, strict=True))
        found = bound(Context())[0]
        np.testing.assert_array_equal(found, np.full((300, 1000), 0.125, np.float32))
