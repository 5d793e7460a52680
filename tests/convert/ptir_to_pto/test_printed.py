"""Every kernel that the translator makes is printed: as assembly and as C++, for both targets."""

import pytest

from ptir_tools.convert import translate
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.dialects import load_format
from tests import models
from tests.convert.ptir_to_pto.programs import TARGETS, single

QUICK = ("llama", "quantized_mlp")
LONG, ROW = "tensor<f32, 1024x4096>", "tensor<f32, 1024x1>"
HEADS, SCORES, SUMS = "tensor<f32, 12x512x64>", "tensor<f32, 12x512x512>", "tensor<f32, 12x512x1>"


def softmax(x, full, column, axis):
    shape = full.split(", ")[1].rstrip(">").replace("x", ", ")
    return [
        f"%m = reduce_max({x}) axes[{axis}] keepdims[true] -> {column}",
        f"%n = broadcast_to(%m) result_shape[{shape}] -> {full}",
        f"%d = sub({x}, %n) -> {full}",
        f"%e = exp(%d) -> {full}",
        f"%s = reduce_sum(%e) axes[{axis}] keepdims[true] -> {column}",
        f"%t = broadcast_to(%s) result_shape[{shape}] -> {full}",
    ]


def deep(full, many):
    """Ops of which each result is read again at the end: many tiles are live, and some ops want tiles of their own."""
    lines = [
        f"%a{k} = {('exp', 'neg', 'tanh', 'rsqrt')[k % 4]}(%{'x' if k == 0 else f'a{k - 1}'}) -> {full}" for k in range(many)
    ]
    lines += [f"%r{k} = rem(%{'x' if k == 0 else f'r{k - 1}'}, %a{k}) -> {full}" for k in range(many)]
    return [*lines, f"%y = pow(%r{many - 1}, %x) -> {full}"]


PROGRAMS = {
    "softmax": (f"%x: {LONG}", LONG, [*softmax("%x", LONG, ROW, 1), f"%y = div(%e, %t) -> {LONG}"]),
    "layer norm": (
        "%x: tensor<f32, 1024x768>, %g: tensor<f32, 768>, %b: tensor<f32, 768>", "tensor<f32, 1024x768>",
        ["%y = layer_norm(%x, %g, %b) epsilon[1e-5] -> tensor<f32, 1024x768>"],
    ),
    "attention": (
        f"%q: {HEADS}, %k: {HEADS}, %v: {HEADS}", HEADS,
        [f"%p = dot_general(%q, %k) batch_lhs[0] batch_rhs[0] contract_lhs[2] contract_rhs[2] -> {SCORES}",
         *softmax("%p", SCORES, SUMS, 2), f"%w = div(%e, %t) -> {SCORES}",
         f"%y = dot_general(%w, %v) batch_lhs[0] batch_rhs[0] contract_lhs[2] contract_rhs[1] -> {HEADS}"],
    ),
    "many that live": ("%x: tensor<f32, 512x1000>", "tensor<f32, 512x1000>", deep("tensor<f32, 512x1000>", 8)),
    "many of a symbol": ("%x: tensor<f32, ?Mx1000>", "tensor<f32, ?Mx1000>", deep("tensor<f32, ?Mx1000>", 8)),
    "long columns": ("%x: tensor<si8, 4096x512>", "tensor<si8, 512>", ["%y = reduce_xor(%x) axes[0] -> tensor<si8, 512>"]),
    "a turned sort": ("%x: tensor<f32, 300x64>", "tensor<f32, 300x64>", ["%y = sort(%x) axis[0] -> tensor<f32, 300x64>"]),
    "places": ("%x: tensor<f32, 64x5000>", "tensor<si32, 64>", ["%y = argmax(%x) axis[1] -> tensor<si32, 64>"]),
}  # fmt: skip


def printed(before, target):
    after = translate(before, "pto", found := Diagnostics(before.source), Options(target=target, constants={}))
    assert after is not None, found.items
    for name in ("pto-as", "pto-cpp"):
        text = "".join(load_format(name).write(after, found := Diagnostics(), Options()))
        assert text and not found.errors, found.items


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_fused_is_printed(name, target):
    parameters, result, lines = PROGRAMS[name]
    printed(single(parameters, result, *lines), target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in models.MODULES])
def test_a_model_is_printed(name, target):
    printed(models.program(name), target)
