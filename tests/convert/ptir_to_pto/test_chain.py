"""Attention in PTO as one kernel: its numbers are those of NumPy in every order, and the pipes have little to wait for."""

import random
import re

import numpy as np
import pytest

from ptir_tools.convert import translate
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.core.source import Source
from ptir_tools.core.verify import verify
from ptir_tools.dialects.pto.run.timeline import Timeline
from ptir_tools.dialects.pto.text import assembly
from ptir_tools.dialects.pto.text import format as pto_text
from tests.convert.ptir_to_pto.programs import TARGETS, function, written
from tests.pto.programs import run
from tests.pto.test_cpp import compiled, executed


def layer(heads, length, width, dtype="f32", turned=True, name="", x="%q", k="%k", v="%v"):
    """The lines of one attention over heads, or batches and heads; with `turned` keys have the shape of queries. What it gives
    is `%o`."""
    lead = heads if isinstance(heads, tuple) else (heads,)
    n, dims = len(lead), ", ".join(map(str, (*lead, length, length)))
    whole, scores, column = (f"tensor<{dtype}, {extents(*lead, length, d)}>" for d in (width, length, 1))
    axes = f"batch_lhs{[*range(n)]} batch_rhs{[*range(n)]} contract_lhs[{n + 1}]"
    return [
        f"%s{name} = dot_general({x}, {k}) {axes} contract_rhs[{n + 1 if turned else n}] -> {scores}",
        f"%c{name} = mul(%s{name}, dense<0.25> : {scores}) -> {scores}",
        f"%m{name} = reduce_max(%c{name}) axes[{n + 1}] keepdims[true] -> {column}",
        f"%mb{name} = broadcast_to(%m{name}) result_shape[{dims}] -> {scores}",
        f"%d{name} = sub(%c{name}, %mb{name}) -> {scores}",
        f"%e{name} = exp(%d{name}) -> {scores}",
        f"%t{name} = reduce_sum(%e{name}) axes[{n + 1}] keepdims[true] -> {column}",
        f"%tb{name} = broadcast_to(%t{name}) result_shape[{dims}] -> {scores}",
        f"%w{name} = div(%e{name}, %tb{name}) -> {scores}",
        f"%o{name} = dot_general(%w{name}, {v}) {axes} contract_rhs[{n}] -> {whole}",
    ]


def extents(*shape):
    return "x".join(map(str, shape))


def attention(heads, length, width, dtype="f32", turned=True):
    lead = heads if isinstance(heads, tuple) else (heads,)
    whole = f"tensor<{dtype}, {extents(*lead, length, width)}>"
    keys = whole if turned else f"tensor<{dtype}, {extents(*lead, width, length)}>"
    return function(f"%q: {whole}, %k: {keys}, %v: {whole}", whole, *layer(heads, length, width, dtype, turned), returns="%o")


def softmax_of(q, k, v):
    scores = np.einsum("...qd,...kd->...qk", q, k) * 0.25
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("...qk,...kd->...qd", weights / weights.sum(-1, keepdims=True), v)


def translated(before, target="a3"):
    """The PTO program as its text says it, in which the check of order has found nothing."""
    after = translate(before, "pto", found := Diagnostics(before.source), Options(target=target))
    assert after is not None and not found.items, found.items
    source = Source("test.pto", written(after))
    made = pto_text.read(source, found := Diagnostics(source), Options())
    verify(made, found)
    assert {d.code for d in found} <= {"RedundantWait"}, found.items
    return made


def kernels(made):
    """The functions that the entry calls, in order."""
    return [op.attr("callee") for op in made.main.ops() if op.defn.short == "func.call"]


def inputs(made, *given):
    """Arrays for all parameters, in order: those that are given, and NaN in memory that the program writes."""
    found = {}
    for k, p in enumerate(made.main.params):
        found[p.name] = given[k] if k < len(given) else np.full(p.type.shape, np.nan, given[0].dtype)
    return found


def drawn(heads, length, width, dtype=np.float32):
    rng, lead = np.random.default_rng(7), heads if isinstance(heads, tuple) else (heads,)
    return [rng.standard_normal((*lead, length, width)).astype(dtype) for _ in range(3)]


def held(made, expected, *given, rtol=2e-5, atol=2e-6):
    """The program gives `expected` in every order; a run that meets a race ends with an error."""
    for order in ("sequential", "adversarial", "random"):
        found = run(made, inputs(made, *given), order=order)
        np.testing.assert_allclose(list(found.values())[-1], expected, rtol=rtol, atol=atol, err_msg=order)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("heads", [2, 3, 5])
def test_numbers_in_every_order(heads, target):
    made = translated(attention(heads, 256, 32), target)
    assert len(kernels(made)) == 1
    q, k, v = drawn(heads, 256, 32)
    held(made, softmax_of(*(x.astype(np.float64) for x in (q, k, v))), q, k, v)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("heads", [40, (2, 5), (3, 2)], ids=str)
def test_any_number_of_heads_is_one_kernel(heads, target):
    """Also of several batches, whose heads are a loop in a loop."""
    made = translated(attention(heads, 64, 16), target)
    assert len(kernels(made)) == 1
    q, k, v = drawn(heads, 64, 16)
    held(made, softmax_of(*(x.astype(np.float64) for x in (q, k, v))), q, k, v)


def test_32_heads_of_512_rows_are_one_kernel():
    assert len(kernels(translated(attention(32, 512, 64), "a5"))) == 1


def test_keys_that_are_turned_already():
    made = translated(attention(3, 256, 32, turned=False))
    assert len(kernels(made)) == 1
    q, k, v = drawn(3, 256, 32)
    held(made, softmax_of(*(x.astype(np.float64) for x in (q, k, v))), q, np.ascontiguousarray(k.transpose(0, 2, 1)), v)


def test_f16():
    made = translated(attention(3, 256, 32, "f16"), "a5")
    assert len(kernels(made)) == 1
    q, k, v = drawn(3, 256, 32, np.float16)
    held(made, softmax_of(*(x.astype(np.float64) for x in (q, k, v))), q, k, v, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("width", [64, 256])
def test_layers_share_the_function_and_no_memory_too_many(width):
    """Memory of the two layers is used again, and with 256 all of it has one type."""
    whole = f"tensor<f32, 2x256x{width}>"
    lines = [*layer(2, 256, width, name="1"), *layer(2, 256, width, name="2", x="%o1", k="%q", v="%k")]
    made = translated(function(f"%q: {whole}, %k: {whole}, %v: {whole}", whole, *lines, returns="%o2"))
    assert len(kernels(made)) > len(set(kernels(made)))
    q, k, v = drawn(2, 256, width)
    wide = [x.astype(np.float64) * 0.5 for x in (q, k, v)]
    expected = softmax_of(softmax_of(*wide), wide[0], wide[1])
    held(made, expected, *(x.astype(np.float32) for x in wide), rtol=1e-4, atol=1e-5)


def test_weights_that_are_a_result_too():
    whole, scores = "tensor<f32, 2x256x32>", "tensor<f32, 2x256x256>"
    before = function(f"%q: {whole}, %k: {whole}, %v: {whole}", f"{scores}, {whole}", *layer(2, 256, 32), returns="%w, %o")
    made = translated(before)
    q, k, v = drawn(2, 256, 32)
    held(made, softmax_of(*(x.astype(np.float64) for x in (q, k, v))), q, k, v)


@pytest.mark.parametrize(
    "shape", [(1, 256, 32), (2, 32, 16), (2, 70, 16), (2, 1024, 16)], ids=["one head", "few rows", "odd rows", "long rows"]
)
def test_what_does_not_fit_is_several_kernels(shape):
    made = translated(attention(*shape))
    assert len(kernels(made)) > 1
    q, k, v = drawn(*shape)
    held(made, softmax_of(*(x.astype(np.float64) for x in (q, k, v))), q, k, v)


def test_a_second_product_that_reads_columns_waits_for_all_rows():
    """The weights are read the other way round: no block of rows is enough."""
    whole = "tensor<f32, 2x256x32>"
    lines = layer(2, 256, 32)
    lines[-1] = f"%o = dot_general(%w, %v) batch_lhs[0] batch_rhs[0] contract_lhs[1] contract_rhs[1] -> {whole}"
    made = translated(function(f"%q: {whole}, %k: {whole}, %v: {whole}", whole, *lines, returns="%o"))
    assert len(kernels(made)) > 1
    q, k, v = drawn(2, 256, 32)
    scores = np.einsum("hqd,hkd->hqk", q, k).astype(np.float64) * 0.25
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    held(made, np.einsum("hqk,hqd->hkd", weights / weights.sum(-1, keepdims=True), v), q, k, v, rtol=1e-4, atol=1e-5)


def test_a_wait_that_is_removed_is_reported():
    """Every event that an op waits for, one after the other, of some: the check or a run in which it is late says so."""
    text = written(translated(attention(3, 256, 32)))
    waits = list(re.finditer(r" wait\((%e\d+)\)", text))
    noticed = 0
    for m in random.Random(3).sample(waits, 12):
        broken = text[: m.start()] + text[m.end() :]
        source = Source("broken.pto", broken)
        made = pto_text.read(source, found := Diagnostics(source), Options())
        verify(made, found)
        noticed += any(d.code in ("MissingWait", "MemoryHazard") for d in found)
    assert noticed >= 11  # one wait orders nothing in the first iteration, and is said to be redundant


@pytest.mark.parametrize(("target", "length"), [("a3", 256), ("a5", 512)])
def test_the_busiest_pipe_has_little_to_wait_for(target, length):
    """On a3 products reach the vector unit through memory, and two blocks of 512 columns have no room in Acc."""
    made = translated(attention(12, length, 64), target)
    assert len(kernels(made)) == 1
    timeline = Timeline()
    run(made, inputs(made, *drawn(12, length, 64)), timeline=timeline)
    makespan, busiest = timeline.makespan, max(timeline.busy().values())
    assert makespan <= 1.1 * busiest


@compiled
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("heads", "length", "width"),
    [(2, 256, 16), (4, 64, 16), ((2, 4), 64, 16)],
    ids=["two heads", "a loop of heads", "batches of heads"],
)
def test_as_cpp_it_has_the_same_numbers(heads, length, width, target, tmp_path):
    """In many orders of the pipes; the flags are those of the assembly, which says all of it, too."""
    made = translated(attention(heads, length, width), target)
    (name,) = kernels(made)
    loops = [op for op in made.function(name).ops() if op.defn.short == "scf.for"]
    assert bool(loops) == (heads != 2)
    lines = "".join(assembly.write(made, found := Diagnostics(made.source), Options())).splitlines()
    assert not found.items and sum(" = tmatmul " in line for line in lines) >= 8
    q, k, v = drawn(heads, length, width)
    expected, given = softmax_of(*(x.astype(np.float64) for x in (q, k, v))), inputs(made, q, k, v)
    for got in executed(made, given, tmp_path):
        np.testing.assert_allclose(got[made.main.params[-1].name], expected, rtol=2e-5, atol=2e-6)
