"""Several threads of a caller at once: what they read, prepare and run is their own, or waits."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools.engines import RunOptions, run
from tests.engines.programs import FAST

THREADS = 6


@pytest.fixture(autouse=True)
def _hurried() -> Iterator[None]:
    """Threads are changed as often as can be."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def at_once(call: Callable[[int], None], times: int) -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(call, i % THREADS) for i in range(THREADS * times)]:
            done.result()


def network() -> tuple[ptir.Program, list[np.ndarray]]:
    """Three layers with weights that are constants."""
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((96, 96)).astype(np.float32) / 8 for _ in range(3)]
    g = ptir.Graph()
    h = g.input("x", "f32", (64, 96))
    for w in weights:
        h = (h @ g.constant(w)).tanh()
    return g.returns(h.named("y")), weights


def hold(found: dict[str, np.ndarray], x: np.ndarray, weights: list[np.ndarray]) -> None:
    want = x.astype(np.float64)
    for w in weights:
        want = np.tanh(want @ w)
    np.testing.assert_allclose(found["y"], want, atol=1e-4)


@pytest.mark.parametrize("engine", FAST)
def test_threads_share_a_session(engine: str) -> None:
    program, weights = network()
    inputs = [np.random.default_rng(i).standard_normal((64, 96)).astype(np.float32) for i in range(THREADS)]
    session = ptir.compile(program, engine=engine)
    at_once(lambda i: hold(session({"x": inputs[i]}), inputs[i], weights), 20)


def test_threads_share_a_program_and_its_packed_constants() -> None:
    program, weights = network()
    text, x = ptir.write(program), np.random.default_rng(7).standard_normal((64, 96)).astype(np.float32)

    def used(i: int) -> None:
        if i == THREADS - 1:
            assert ptir.write(program) == text
        elif i == THREADS - 2:
            hold(ptir.compile(program)({"x": x}), x, weights)
        else:
            hold(run(program, {"x": x}, RunOptions(engine=("native", "numpy", "reference")[i % 3])), x, weights)

    at_once(used, 4)


TEXT = "func @f(%x: tensor<f32, {n}>) -> tensor<f32, {n}> {{\n%y = add(%x, %x) -> tensor<f32, {n}>\n{more}return %y\n}}\n"


def test_threads_read_texts() -> None:
    """With what no line reader takes, and with mistakes: each gets its own program, or its own errors."""

    def read(i: int) -> None:
        n = 3 + i
        more = "".join(f"%z{k} = mul(%y,\n %x) -> tensor<f32, {n}>\n" for k in range(20))
        text = TEXT.format(n=n, more=more)
        program = ptir.read(text)
        assert program.main.params[0].type.static_shape == (n,)
        assert len(program.main.body) == 21
        with pytest.raises(ptir.Rejected) as refused:
            ptir.read(text.replace("%z5 =", f"%z5 {n} ="))
        assert "%z5" in str(refused.value) or str(n) in str(refused.value)

    at_once(read, 8)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("shape", [(256, 256, 256), (131, 97, 203), (512, 80, 640)])
@pytest.mark.parametrize("turned", [False, True])
def test_a_product_is_the_same_with_any_number_of_threads(dtype: str, shape: tuple[int, int, int], turned: bool) -> None:
    """Also where each of them packs the right operand."""
    m, k, n = shape
    g = ptir.Graph()
    x, w = g.input("x", dtype, (m, k)), g.input("w", dtype, (n, k) if turned else (k, n))
    program = g.returns(x.dot_general(w, contract_lhs=[1], contract_rhs=[1 if turned else 0]).named("y"))
    rng = np.random.default_rng(m)
    types = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
    given = {
        "x": rng.standard_normal((m, k)).astype(types[dtype]),
        "w": rng.standard_normal((n, k) if turned else (k, n)).astype(types[dtype]),
    }
    one, *others = [ptir.compile(program, engine="native", threads=t)(given)["y"] for t in (1, 2, 3)]
    exact = given["x"].astype(float) @ (given["w"].T if turned else given["w"]).astype(float)
    np.testing.assert_allclose(one.astype(float), exact, rtol=2.0**-7, atol=0.5 if dtype == "bf16" else 0.05)
    for other in others:
        np.testing.assert_array_equal(one.view(np.uint8), other.view(np.uint8))
