"""Results keep their names through passes: text says them with `as`."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.core.source import Source
from ptir_tools.dialects.ptir.text.fmt import format_text
from ptir_tools.engines import run
from ptir_tools.engines.signature import results
from ptir_tools.passes import run_pipeline
from tests.passes.symbol_programs import symbol_program
from tests.passes.test_symbols_kept import PASSES
from tests.rewrite.test_rules import FORMAT, read, write
from tests.tiny.graphs import good, graph, node, printed, source

TEXT = """func @f(%x: tensor<f32, 2>) -> (tensor<f32, 2>, tensor<f32, 2>) {
  %z = exp(%x) -> tensor<f32, 2>
  return %z as out, %z as "2 b"
}
"""


def names(text: str) -> list[str]:
    return [p.name for p in results(read(text))]


def test_names_of_results_are_read_and_printed() -> None:
    assert names(TEXT) == ["out", "2 b"]
    assert write(read(TEXT)) == TEXT
    assert format_text(Source("case", TEXT.replace("%z as out, ", "z   as out,")), Diagnostics()) == TEXT
    assert names(TEXT.replace("%z as out", "%z as z")) == ["z", "2 b"]
    assert "return %z, %z as" in write(read(TEXT.replace("%z as out", "%z as z")))


@pytest.mark.parametrize("seed", range(40))
def test_passes_keep_the_names_of_results(seed: int) -> None:
    made, rng = symbol_program(seed), random.Random(seed)
    program = read(made.text)
    before = [p.name for p in results(program)]
    run_pipeline(program, ",".join(rng.choices(PASSES, k=4)))
    outputs = run(read(write(program)), made.inputs)
    assert [*outputs] == before
    for name, want in zip(before, made.results, strict=True):
        np.testing.assert_array_equal(outputs[name], want)


@pytest.mark.parametrize("tail", ["%z as", "%z as %y", "%z as out as out", "as out"])
def test_a_name_that_cannot_be_is_a_syntax_error(tail: str) -> None:
    text = TEXT.replace('%z as out, %z as "2 b"', tail)
    found = Diagnostics(Source("case", text))
    FORMAT.read(found.source, found, Options())
    assert found.errors


@pytest.mark.parametrize("pipeline", ["cse", "normalize,cse", "cse,dce", "fold,cse,simplify,canonicalize"])
def test_equal_outputs_of_a_graph_stay_two(pipeline: str) -> None:
    nodes = source([2], id="x"), node("NEG", id="a"), node("NEG", id="b"), node("EXP2", "b", id="c")
    text = graph(*nodes, outputs=["a", "b", "c"])
    program = good(text)
    run_pipeline(program, pipeline)
    assert [p.name for p in results(good(printed(program)))] == ["a", "b", "c"]


def test_equal_nodes_merge_where_an_output_keeps_its_name() -> None:
    text = graph(source([2], id="x"), node("NEG", id="a"), node("NEG", id="b"), node("EXP2", "a", id="c"), outputs=["b", "c"])
    program = good(text)
    run_pipeline(program, "cse")
    assert [p.name for p in results(good(printed(program)))] == ["b", "c"]
    assert len(program.main.body) == 2


def test_a_result_of_a_region_has_no_name() -> None:
    text = """program @f (spec_version = ptir.v0.4) {
  func @f(%x: tensor<f32>) -> tensor<f32> {
    return %x
  }
  region ^r(%a: tensor<f32>) -> tensor<f32> {
    return %a as b
  }
}
"""
    found = Diagnostics(Source("case", text))
    FORMAT.read(found.source, found, Options())
    assert [d.message for d in found] == ["a region's result has no name"]
