"""Every code of Tiny is provoked, and the samples come out as promised in both profiles."""

import re
from pathlib import Path

import numpy as np
import pytest

from ptir_tools import engines
from ptir_tools.core.diagnostics import Rejected, Severity
from ptir_tools.dialects import load_dialect
from ptir_tools.dialects.tiny.codes import ERRORS, NOTES
from tests.conftest import run_ptir
from tests.tiny.graphs import SIZES, codes, good, graph, node, read, run, sample, source

EXAMPLES = [c for c in ERRORS if c.code not in ("AxisAlignmentMismatch", "UnboundSymbol")]


@pytest.mark.parametrize("code", EXAMPLES, ids=lambda c: c.code)
def test_explained_programs(code) -> None:
    assert codes(code.wrong, "strict") == [code.code]
    assert codes(code.right, "strict") == []


def test_sources_of_a_symbol_that_disagree() -> None:
    example = next(c for c in ERRORS if c.code == "AxisAlignmentMismatch")
    shapes = {"X": (3, 4), "a": (2,), "b": (5,)}
    given = {n: np.zeros(s, np.float32) for n, s in shapes.items()}
    with pytest.raises(Rejected) as refused:
        engines.run(good(example.wrong), given)
    assert [d.code for d in refused.value.diagnostics] == ["AxisAlignmentMismatch"]
    assert engines.run(good(example.right), given)["y"].shape == (3, 4)


def test_an_input_against_dims() -> None:
    program = good(graph(source(["M"]), node("NEG"), dims={"M": 2}))
    with pytest.raises(Rejected) as refused:
        engines.run(program, {"x": np.zeros(3, np.float32)})
    assert [d.code for d in refused.value.diagnostics] == ["AxisAlignmentMismatch"]


def test_unbound_symbols_are_named() -> None:
    program = good(graph(source([2]), node("PAD", pad=[["p", "q"]])))
    with pytest.raises(Rejected) as refused:
        engines.run(program, {"x": np.zeros(2, np.float32)})
    (diagnostic,) = refused.value.diagnostics
    assert diagnostic.code == "UnboundSymbol" and "p, q" in diagnostic.message


NOTED = {
    "UnknownKey": graph(source([2]), node("NEG"), more=1),
    "JsonComment": "// c\n" + graph(source([2]), node("NEG")),
    "PoolMacro": graph(source([5]), node("POOL", kernel=[2])),
    "ImplicitCast": graph(source([5]), source([5], "fp16", "w"), node("ADD", "x", "w")),
    "ImplicitExpand": graph(source([5]), source([1], id="w"), node("ADD", "x", "w")),
    "ReducedAxisAlignment": graph(
        source(["M", "N"]), node("REDUCE", id="s", op="MAX", axes=[1], dtype="fp32"), node("SUB", "x", "s")
    ),
    "SuspiciousReshape": graph(source(["M", "N"]), node("RESHAPE", result_shape=["N", "M"])),
    "InferredSymbol": graph(source([6]), node("RESHAPE", result_shape=[2, "N"])),
}


@pytest.mark.parametrize("code", [c.code for c in NOTES])
def test_notes(code: str) -> None:
    program, diagnostics = read(NOTED[code])
    assert program is not None and [d.code for d in diagnostics] == [code]
    assert diagnostics.items[0].severity is (Severity.WARNING if code == "UnknownKey" else Severity.NOTE)


def test_no_code_is_used_that_is_not_explained() -> None:
    known = {c.code for c in load_dialect("tiny").explain()}
    used: set[str] = set()
    for path in ("ptir_tools/dialects/tiny", "ptir_tools/convert"):
        used |= _codes_in(path)
    assert used <= known | {"NotTranslatable", "ConditionalTranslation"}, used - known


def _codes_in(folder: str) -> set[str]:
    files = [f for f in Path(folder).rglob("*.py") if folder.endswith("tiny") or "tiny" in f.name]
    texts = "\n".join(f.read_text("utf-8") for f in files)
    return set(re.findall(r'(?:Violation\(|require\([^\n]*?, |\.error\(|\.note\(|\.warning\()\s*"([A-Z][a-z]\w+)"', texts))


OUTCOMES = {
    "seed_5_1_gemm": ("", ""),
    "seed_5_2_conv2d": ("UnknownUop DtypeMismatch ExpandMissing", ""),
    "seed_5_3_attention": ("BroadcastMismatch", ""),
    "04_gemm_no_permute": ("", ""),
    "05_attention_full": ("", ""),
    "07_conv2d_view": ("", ""),
    "10_where_mask": ("", ""),
    "13_reduce_init": ("", ""),
    "16_unordered_nodes": ("", ""),
    "17_attention_scores_fixed": ("", ""),
    "30_broadcast_mismatch": ("BroadcastMismatch", "BroadcastMismatch"),
    "30c_missing_expand": ("ExpandMissing", ""),
    "31_axis_size_mismatch": ("AxisSizeMismatch", "AxisSizeMismatch"),
    "32_invalid_permutation_dup": ("InvalidPermutation", "InvalidPermutation"),
    "33_acc_dtype_missing": ("AccDtypeMissing", "AccDtypeMissing"),
    "34_excessive_piecewise": ("ExcessivePiecewise", "ExcessivePiecewise"),
    "35_dtype_mismatch": ("DtypeMismatch", ""),
    "36_cycle": ("CycleDetected", "CycleDetected"),
    "38_unknown_uop": ("UnknownUop", "UnknownUop"),
    "40_view_out_of_bounds": ("UnguardedAccess", "UnguardedAccess"),
    "42_shrink_range": ("InvalidArg", "InvalidArg"),
    "44_ambiguous_axis": ("AmbiguousAxis", "AmbiguousAxis"),
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_samples(name: str) -> None:
    strict, seed = OUTCOMES[name]
    assert codes(sample(name), "strict") == strict.split()
    assert codes(sample(name)) == seed.split()


def test_the_reshape_that_scrambles_is_noted_with_its_fix() -> None:
    _, diagnostics = read(sample("seed_5_3_attention"))
    (lint,) = [d for d in diagnostics if d.code == "SuspiciousReshape"]
    assert lint.fix is not None and lint.source is not None and lint.fix.text == '"n1"'
    start, end = lint.fix.span
    assert lint.source.text[start:end] == '"n2"'
    assert [edit.text for edit in lint.fix.also] == [',\n  "outputs":["n15"]']


def attention(text: str) -> tuple[list[np.ndarray], np.ndarray]:
    """What a version of the specification's attention gives, and softmax(Q Kᵀ)."""
    rng = np.random.default_rng(0)
    q, k = (rng.uniform(-1, 1, (2, 3, n, 8)).astype(np.float16) for n in (4, 5))
    logits = np.einsum("bhmd,bhnd->bhmn", q.astype(np.float64), k.astype(np.float64))
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return run(good(text), [q, k], SIZES), weights / weights.sum(-1, keepdims=True)


def test_mended_attention_has_its_one_output_and_is_softmax(ptir) -> None:
    before = sample("seed_5_3_attention")
    mended = ptir("fix", "--unsafe", "-", stdin=before.encode()).text
    assert mended == before.replace('"RESHAPE","src":["n2"]', '"RESHAPE","src":["n1"]').replace(
        "\n  ]\n}", '\n  ],\n  "outputs":["n15"]\n}'
    )
    (scrambled,), softmax = attention(before)
    assert np.abs(scrambled - softmax).max() > 0.01
    (given,), _ = attention(mended)
    assert np.abs(given - softmax).max() < 0.002


PERMUTED = (
    source(["A", "B", 4]),
    node("PERMUTE", id="p", perm=[1, 0, 2]),
    node("RESHAPE", "p", id="r", result_shape=["A", "B", 4]),
)


@pytest.mark.parametrize(("more", "outputs"), [((), True), ((node("NEG", "p", id="n"),), False)])
def test_the_fix_names_outputs_only_when_they_would_change(more: tuple, outputs: bool) -> None:
    for named in ({}, {"outputs": ["r"]}):
        (lint,) = [d for d in read(graph(*PERMUTED, *more, **named))[1] if d.code == "SuspiciousReshape"]
        assert lint.fix is not None and bool(lint.fix.also) == (outputs and not named)


@pytest.mark.parametrize("text", [graph(source([2, 3]), node("REDUCE", op="SUM", axes=[0, -2], dtype="fp32")),
                                  graph(source([2, 3]), node("FLIP", axes=[0, -2]))])  # fmt: skip
def test_an_axis_named_twice_is_told_as_written(text: str) -> None:
    (error,) = read(text)[1]
    assert error.code == "InvalidArg" and "axes [0, -2] of" in error.message


def test_a_pool_that_strict_refuses_and_that_does_not_fit_is_told_once() -> None:
    text = graph(source([3]), node("POOL", kernel=[4]))
    assert codes(text, "strict") == ["UnknownUop"] and codes(text) == ["InvalidArg"]


def test_a_pad_that_its_dtype_has_not_is_told_in_one_sentence() -> None:
    (error,) = read(graph(source([2], "i32"), node("PAD", pad=[[1, 1]], value="nan")))[1]
    assert (error.code, error.message) == ("NeutralInvalid", "the value of PAD, nan, does not fit i32")


def test_an_index_map_that_is_nested_too_deep() -> None:
    entry: object = "i0"
    for _ in range(100):
        entry = {"add": [entry, 0]}
    text = graph(source([2]), node("VIEW", result_shape=[2], index_map={"map": [entry]}))
    ran = run_ptir("verify", "--diagnostics", "short", stdin=text.encode())
    assert ran.status == 1 and "error[InvalidArg]: map: the expression is nested deeper than 64" in ran.err
