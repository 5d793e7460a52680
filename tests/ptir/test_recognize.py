"""Recognition: every kernel of the package, its forms in other shapes and dtypes, what must not be taken for it, and back."""

from __future__ import annotations

import math
import random
import re
from functools import reduce

import numpy as np
import pytest

from ptir_tools.core.dialect import Program, clone
from ptir_tools.core.dtypes import I1
from ptir_tools.core.evaluate import Context, run_block
from ptir_tools.core.ir import Op, operand_type
from ptir_tools.dialects.ptir.kernels.recognition import COMPOSITES, composite, spellings
from ptir_tools.engines.compare import check
from ptir_tools.engines.options import RunOptions
from ptir_tools.passes import Floats, PassContext, run_pipeline
from ptir_tools.rewrite.rewriter import Rewriter
from tests.rewrite.test_rules import read, write

NUMBERS = {"n": "0.3333333333333333", "epsilon": "0.001", "scale": "0.25", "low": "-inf"}
FOUND = {
    "softmax": "gpt_rs.triton.fused_softmax_last_axis.f32.v1",
    "softmax_unshifted": "gpt_rs.triton.fused_softmax_last_axis.f32.v1",
    "log_softmax": "ptir.log_softmax.v1",
    "layer_norm": "layer_norm",
    "layer_norm_moments": "layer_norm",
    "rms_norm": "ptir.rms_norm.v1",
    "gelu": "ptir.gelu.v1",
    "gelu_tanh": "ptir.gelu.v1",
    "gelu_sigmoid": "ptir.gelu.v1",
    "silu": "ptir.silu.v1",
    "silu_unbounded": "ptir.silu.v1",
    "attention": "ptir.attention.v1",
    "convolution": "gpt_rs.c.conv2d.nhwc.f32.v1",
    "matrix_convolution": "gpt_rs.c.conv2d.nhwc.f32.v1",
    "grouped_convolution": "ptir.conv2d.nhwc.v1",
    "depthwise_convolution": "gpt_rs.faer.depthwise_conv2d.nhwc.f32.v1",
}
RANGE = ("softmax_unshifted", "layer_norm_moments", "silu_unbounded")  # found under fast floats alone


def kernels(name: str, dtype: str = "f32") -> list[str]:
    """The composite, and each function of a kernel file, as a program whose numbers are constants."""
    found = [write(composite(name, dtype))] if name in COMPOSITES else []
    spelled = spellings(name).replace("tensor<f32", f"tensor<{dtype}")
    return found + [with_numbers(f, dtype) for f in re.findall(r"^  (func .*?^  })", spelled, re.MULTILINE | re.DOTALL)]


def with_numbers(function: str, dtype: str = "f32") -> str:
    for name, number in NUMBERS.items():
        function, params = re.subn(rf", %{name}: tensor<{dtype}>", "", function)
        function = function if not params else function.replace(f"(%{name})", f"(dense<{number}> : tensor<{dtype}>)")
    return function


def recognized(text: str, pipeline: str = "recognize", floats: Floats = Floats.FAST) -> tuple[Program, Program]:
    before = read(text)
    program = clone(before)
    run_pipeline(program, pipeline, PassContext(floats=floats))
    return before, program


def names(program: Program) -> list[str]:
    """The ops of the function; custom calls by target."""
    return [op.attr("target") if op.defn.short == "custom_call" else op.defn.short for op in program.main.body]


CASES = [(name, i) for name in FOUND for i in range(len(kernels(name)))]


@pytest.mark.parametrize(("name", "i"), CASES)
def test_every_kernel_is_recognized_equal_and_decomposed_back(name: str, i: int) -> None:
    text = kernels(name)[i]
    before, program = recognized(text)
    assert FOUND[name] in names(program) and not {"exp", "rsqrt", "erf", "tanh", "dot_general", "reduce_sum"} & set(
        names(program)
    )
    assert not check(before, program).diverged
    once = write(program)
    run_pipeline(program, "recognize", PassContext(floats=Floats.FAST))
    assert write(program) == once
    run_pipeline(program, "decompose,canonicalize,cse,dce")
    assert FOUND[name] not in names(program) and not check(before, program).diverged
    run_pipeline(program, "recognize")
    assert FOUND[name] in names(program)


@pytest.mark.parametrize("dtype", ["f64", "f16", "bf16"])
@pytest.mark.parametrize("name", FOUND)
def test_kernels_are_recognized_in_every_float_dtype(name: str, dtype: str) -> None:
    for text in kernels(name, dtype):
        before, program = recognized(text)
        assert not {"exp", "rsqrt", "erf", "tanh", "dot_general", "reduce_sum"} & set(names(program))
        assert not check(before, program).diverged


@pytest.mark.parametrize("name", FOUND)
@pytest.mark.parametrize("engine", ["numpy", "native"])
def test_what_is_recognized_runs_on_every_engine(name: str, engine: str) -> None:
    before, program = recognized(kernels(name)[0])
    assert not check(before, program, runs=2, options=RunOptions(engine=engine)).diverged


@pytest.mark.parametrize("name", FOUND)
def test_kernels_are_recognized_in_canonical_form(name: str) -> None:
    for text in kernels(name):
        for pipeline in ("canonicalize,cse,dce,recognize", "raise-contractions,canonicalize,cse,dce,recognize"):
            assert FOUND[name] in names(recognized(text, pipeline)[1])


@pytest.mark.parametrize("name", RANGE)
def test_kernels_that_fail_for_ordinary_numbers_are_sought_under_fast_floats_alone(name: str) -> None:
    for text in kernels(name):
        assert FOUND[name] not in names(recognized(text, floats=Floats.DEFAULT)[1])


def mutated(text: str, seed: int) -> Program:
    """A kernel with a few operands and axes exchanged for others of the same type."""
    rng = random.Random(seed)
    program = read(text)
    with Rewriter(program.main, program.dialect) as rw:
        for _ in range(rng.randint(1, 2)):
            body = rw.body()
            op = rng.choice([op for op in body if op.operands])
            if op.defn.family == "reduce" and rng.random() < 0.5:
                _reduce_the_other_axis(rw, op)
                continue
            at = rng.randrange(len(op.operands))
            before = body[: body.index(op)]
            values = [v for v in (*program.main.params, *(o.result for o in before)) if v.type is operand_type(op.operands[at])]
            if values:
                rw.set_operands(op, [*op.operands[:at], rng.choice(values), *op.operands[at + 1 :]])
    return program


def _reduce_the_other_axis(rw: Rewriter, op: Op) -> None:
    """Of a square, the other axis, or the same and laid the other way."""
    (axis,) = op.attr("axes")
    if op.attr("keepdims"):
        other = rw.build(op, op.defn, op.operands[0], axes=(1 - axis,), keepdims=True)
        rw.replace_all_uses(op.result, rw.build(op, "transpose", other, perm=(1, 0)))
        rw.erase(op)


@pytest.mark.parametrize("name", FOUND)
def test_what_is_nearly_a_kernel_keeps_its_meaning(name: str) -> None:
    texts = [re.sub(r"2x3\b", "3x3", re.sub(r"2x1\b", "3x1", t)).replace("[2, 3]", "[3, 3]").replace("[2, 1]", "[3, 1]")
             for t in kernels(name)] if "2x3>" in kernels(name)[0] else kernels(name)  # fmt: skip
    for seed in range(40):
        before = mutated(texts[seed % len(texts)], seed)
        program = clone(before)
        run_pipeline(program, "recognize", PassContext(floats=Floats.FAST if name in RANGE else Floats.DEFAULT))
        assert not check(before, program, runs=1).diverged, write(before)


def erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf)(x)


def softmax(x: np.ndarray) -> np.ndarray:
    power = np.exp(x - x.max(-1, keepdims=True))
    return power / power.sum(-1, keepdims=True)


def layer_norm(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    centered = x - x.mean(-1, keepdims=True)
    return centered / np.sqrt(np.mean(centered**2, -1, keepdims=True) + 0.001) * gamma + beta


def tanh_gelu(x: np.ndarray) -> np.ndarray:
    return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


def masked(x: np.ndarray, mask: np.ndarray) -> np.ndarray:
    return np.where(mask, x, -np.inf) if mask.dtype == bool else x + mask


ORACLES = {
    "softmax": softmax,
    "softmax_unshifted": softmax,
    "log_softmax": lambda x: np.log(softmax(x)),
    "layer_norm": layer_norm,
    "layer_norm_moments": layer_norm,
    "rms_norm": lambda x, gamma: x / np.sqrt(np.mean(x * x, -1, keepdims=True) + 0.001) * gamma,
    "gelu": lambda x: x * (1 + erf(x / math.sqrt(2))) / 2,
    "gelu_tanh": tanh_gelu,
    "gelu_sigmoid": lambda x: x / (1 + np.exp(-1.702 * x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "silu_unbounded": lambda x: x / (1 + np.exp(-x)),
    "attention": lambda q, k, v, *masks: softmax(reduce(masked, masks, q @ k.swapaxes(1, 2) / 4)) @ v,
}


@pytest.mark.parametrize(("name", "i"), [(name, i) for name in ORACLES for i in range(len(kernels(name)))])
def test_what_stands_for_a_kernel_computes_it_as_float64_does(name: str, i: int) -> None:
    program = recognized(kernels(name)[i])[1]
    rng = np.random.default_rng(i)
    types = [p.type for p in program.main.params]
    inputs = [
        np.arange(math.prod(t.static_shape)).reshape(t.static_shape) % 2 == 0
        if t.dtype is I1
        else rng.normal(size=t.static_shape).astype("f4")
        for t in types
    ]
    (got,) = run_block(program.main, inputs, Context())
    wide = [~x if x.dtype == bool and "hidden" in kernels(name)[i] else x.astype("f8") if x.dtype != bool else x for x in inputs]
    assert np.allclose(got, ORACLES[name](*wide), rtol=2e-7, atol=2e-7, equal_nan=True)
