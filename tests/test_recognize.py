"""Recognition: every kernel of the package, its forms in other shapes and dtypes, what must not be taken for it, and back."""

from __future__ import annotations

import random
import re
from importlib.resources import files

import pytest
from test_rules import read, write

from ptir_tools.core.ir import Op, Program, clone
from ptir_tools.core.opdef import operand_type
from ptir_tools.core.rewriter import Rewriter
from ptir_tools.engines.compare import check
from ptir_tools.engines.options import RunOptions
from ptir_tools.passes import PassContext, run_pipeline

KERNELS = files("ptir_tools.dialects.ptir").joinpath("kernels")
NUMBERS = {"n": "0.3333333333333333", "epsilon": "0.001", "scale": "0.25", "low": "-inf"}
FOUND = {
    "softmax": "gpt_rs.triton.fused_softmax_last_axis.f32.v1",
    "layer_norm": "layer_norm",
    "layer_norm_unshifted": "layer_norm",
    "layer_norm_bare": "layer_norm",
    "rms_norm": "ptir.rms_norm.v1",
    "rms_norm_bare": "ptir.rms_norm.v1",
    "gelu": "ptir.gelu.v1",
    "gelu_tanh": "ptir.gelu.v1",
    "silu": "ptir.silu.v1",
    "attention": "ptir.attention.v1",
    "convolution": "gpt_rs.c.conv2d.nhwc.f32.v1",
    "matrix_convolution": "gpt_rs.c.conv2d.nhwc.f32.v1",
    "grouped_convolution": "ptir.conv2d.nhwc.v1",
    "depthwise_convolution": "gpt_rs.faer.depthwise_conv2d.nhwc.f32.v1",
}


def kernels(name: str) -> list[str]:
    """Each function of a kernel file as a program whose numbers are constants."""
    text = KERNELS.joinpath(f"{name}.ptir").read_text("utf-8")
    return [with_numbers(f) for f in re.findall(r"^  (func .*?^  })", text, re.MULTILINE | re.DOTALL)]


def with_numbers(function: str) -> str:
    divides = re.search(r"= div\(%(sum_|scores)", function) is not None
    for name, number in NUMBERS.items():
        value = str(round(1 / float(number), 6)) if divides and name in ("n", "scale") else number
        function, params = re.subn(rf", %{name}: tensor<f32>", "", function)
        function = function if not params else function.replace(f"(%{name})", f"(dense<{value}> : tensor<f32>)")
    return function


def recognized(text: str, pipeline: str = "recognize", **context: object) -> tuple[Program, Program]:
    before = read(text)
    program = clone(before)
    run_pipeline(program, pipeline, PassContext(**context))  # type: ignore[arg-type]
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
    run_pipeline(program, "recognize")
    assert write(program) == once
    run_pipeline(program, "decompose,canonicalize,cse,dce")
    assert FOUND[name] not in names(program) and not check(before, program).diverged
    run_pipeline(program, "recognize")
    assert FOUND[name] in names(program)


@pytest.mark.parametrize("name", FOUND)
@pytest.mark.parametrize("engine", ["numpy", "native"])
def test_what_is_recognized_runs_on_every_engine(name: str, engine: str) -> None:
    before, program = recognized(kernels(name)[0])
    assert not check(before, program, runs=1, options=RunOptions(engine=engine)).diverged


@pytest.mark.parametrize("name", FOUND)
def test_kernels_are_recognized_in_canonical_form(name: str) -> None:
    for text in kernels(name):
        for pipeline in ("canonicalize,cse,dce,recognize", "raise-contractions,canonicalize,cse,dce,recognize"):
            assert FOUND[name] in names(recognized(text, pipeline)[1])


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
        run_pipeline(program, "recognize")
        assert not check(before, program, runs=1).diverged, write(before)
