"""A program that runs must run after passes: no symbol that is mentioned loses the op that defines it."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from ptir_tools.core.arrays import from_literal
from ptir_tools.core.definers import undefined
from ptir_tools.core.diagnostics import Rejected
from ptir_tools.core.dialect import Program, clone
from ptir_tools.engines import RunOptions, run
from ptir_tools.passes import PassContext, PassFailure, names, run_passes, run_pipeline
from tests.convert.translations import parse, text, translated
from tests.passes.cases import WITH_FILES
from tests.passes.symbol_programs import symbol_program
from tests.rewrite.test_rules import read, write
from tests.tiny.symbol_graphs import symbol_graph

PASSES = sorted({*names("ptir")} - {*WITH_FILES, "recognize"})  # the last rounds less


def assert_kept(seed: int) -> None:
    made = symbol_program(seed)
    rng = random.Random(seed)
    program = read(made.text)
    pipeline = ",".join(rng.choices(PASSES, k=rng.randrange(1, 6))) if seed % 3 else "canonicalize,cse,dce"
    after = clone(program)
    run_pipeline(after, pipeline, PassContext(expensive_checks=seed % 7 == 0))
    again = read(write(after))  # what a pass makes is what the next command reads
    for engine, p in (("reference", program), ("reference", again), ("numpy", again)):
        outputs = [*run(p, made.inputs, RunOptions(engine=engine)).values()]
        assert len(outputs) == len(made.results)
        for got, want in zip(outputs, made.results, strict=True):
            np.testing.assert_array_equal(got, want, err_msg=f"seed {seed}, {pipeline}, {engine}")


@pytest.mark.parametrize("block", range(4))
def test_random_programs_run_after_random_pipelines(block: int) -> None:
    for seed in range(block * 25, block * 25 + 25):
        assert_kept(seed)


@pytest.mark.campaign
@pytest.mark.slow
def test_many_random_programs_run_after_random_pipelines() -> None:
    for seed in range(1000, 3000):
        assert_kept(seed)


def func(params: str, body: str, result: str, value: str) -> str:
    lines = "\n".join(f"  {line.strip()}" for line in body.strip().splitlines())
    return f"func @main({params}) -> {result} {{\n{lines}\n  return %{value}\n}}\n"


AB = "%a: tensor<f32, ?N>, %b: tensor<f32, ?M>"
IOTA = "%i = iota() axis[0] -> tensor<si32, ?T>"
CONCAT = "%c = concat(%a, %b) axis[0] -> tensor<f32, ?T>"


def optimized(text: str, pipeline: str = "canonicalize,cse,dce") -> str:
    program = read(text)
    run_pipeline(program, pipeline)
    return write(program)


@pytest.mark.parametrize("pipeline", ["dce", "fold,dce", "canonicalize,cse,dce"])
def test_what_computes_an_extent_may_go(pipeline: str) -> None:
    """The extent is an expression of the symbols of parameters."""
    text = func(AB, f"{CONCAT}\n{IOTA}", "tensor<si32, ?T>", "i")
    assert optimized(text, pipeline) == func(AB, IOTA, "tensor<si32, ?T> where ?T = ?M + ?N", "i")


SQUARE = "%c = reshape(%a) new_shape[?D, ?D] -> tensor<f32, ?Dx?D>"
ROW = "%i = iota() axis[0] -> tensor<si32, ?D>"


@pytest.mark.parametrize("pipeline", ["dce", "canonicalize", "cse", "fold,dce", "canonicalize,cse,dce"])
def test_the_last_definer_stays(pipeline: str) -> None:
    """No expression gives ?D: the run solves it."""
    text = func(AB, f"{SQUARE}\n{ROW}", "tensor<si32, ?D>", "i")
    assert optimized(text, pipeline) == text


def test_one_definer_is_enough() -> None:
    other = SQUARE.replace("%c", "%d").replace("%a", "%b")
    text = func(AB, f"{SQUARE}\n{other}\n{ROW}", "tensor<si32, ?D>", "i")
    assert optimized(text, "dce").count("reshape") == 1


def test_a_definer_goes_when_nothing_mentions_its_symbol() -> None:
    dead = "%j = iota() axis[0] -> tensor<si32, ?T>"
    text = func(AB, f"{CONCAT}\n{dead}\n%e = exp(%a) -> tensor<f32, ?N>", "tensor<f32, ?N>", "e")
    assert optimized(text, "dce") == func(AB, "%e = exp(%a) -> tensor<f32, ?N>", "tensor<f32, ?N>", "e")
    early = func(AB, f"{dead}\n{CONCAT}\n%e = exp(%a) -> tensor<f32, ?N>", "tensor<f32, ?N>", "e")
    assert optimized(early, "dce") == func(AB, "%e = exp(%a) -> tensor<f32, ?N>", "tensor<f32, ?N>", "e")


def test_what_only_checks_a_symbol_is_no_definer() -> None:
    """A parameter tells ?N, so the dead concat that is declared ?N may go."""
    text = func(
        AB, "%c = concat(%a, %b) axis[0] -> tensor<f32, ?N>\n%i = iota() axis[0] -> tensor<si32, ?N>", "tensor<si32, ?N>", "i"
    )
    assert "concat" not in optimized(text)


def test_a_definer_that_needs_its_own_symbol_is_none() -> None:
    """%d says ?T again, from an ?U that comes of ?T: without %c it would say nothing."""
    circle = """
    %u = pad(%i) low[0] high[1] -> tensor<si32, ?U>
    %d = reduce_window(%u) window_dims[2] strides[1] padding[[0, 0]] base_dilation[1] window_dilation[1] -> tensor<si32, ?T>
    """
    text = func(AB, f"{CONCAT}\n{IOTA}\n{circle}\n%n = neg(%i) -> tensor<si32, ?T>", "tensor<si32, ?T>", "n")
    program = read(text)
    run_pipeline(program, "dce")
    given = {"a": np.zeros(2, np.float32), "b": np.zeros(3, np.float32)}
    assert next(iter(run(program, given).values())).shape == (5,)


def test_a_region_defines_for_what_is_around_it() -> None:
    text = """program @main (spec_version = ptir.v0.4) {
  func @main(%a: tensor<f32, ?N>, %p: tensor<i1>) -> tensor<si32, ?T> {
    %y = cond(%p, %a) true_region[^r0] false_region[^r0] -> tensor<f32, ?N>
    %i = iota() axis[0] -> tensor<si32, ?T>
    return %i
  }
  region ^r0(%x: tensor<f32, ?N>) -> tensor<f32, ?N> {
    %c = concat(%x, %x) axis[0] -> tensor<f32, ?T>
    return %x
  }
}
"""
    for pipeline in ("dce", "canonicalize,cse,dce", "licm,sink,simplify-regions,dce"):
        program = read(text)
        run_pipeline(program, pipeline)
        outputs = run(program, {"a": np.zeros(3, np.float32), "p": np.asarray(True)})
        np.testing.assert_array_equal(next(iter(outputs.values())), np.arange(6))
    program = read(text.replace("?T> {\n    %y", "?N> {\n    %y").replace("si32, ?T>\n", "si32, ?N>\n"))
    run_pipeline(program, "dce")
    assert not program.regions  # nothing mentions ?T now


def test_the_order_of_definers_does_not_matter() -> None:
    text = func(AB, f"{IOTA}\n{CONCAT}", "tensor<si32, ?T>", "i")
    outputs = run(read(text), {"a": np.zeros(2, np.float32), "b": np.zeros(3, np.float32)})
    np.testing.assert_array_equal(outputs["i"], np.arange(5))


class _Careless:
    """A pass that takes ops out without asking."""

    name = "careless"

    def run(self, program: Program, context: PassContext) -> None:
        program.main.body = [op for op in program.main.body if op.defn.short != "reshape"]
        context.edits += 1


def test_a_pass_that_loses_a_symbol_is_named() -> None:
    program = read(func(AB, f"{SQUARE}\n{ROW}", "tensor<si32, ?D>", "i"))
    with pytest.raises(PassFailure, match=r"after pass `careless`: nothing in @main defines \?D any more"):
        run_passes(program, [_Careless()])


def test_symbols_that_only_bind_gives_are_undefined() -> None:
    assert undefined(read(func(AB, IOTA, "tensor<si32, ?T>", "i"))) == {("main", "T")}
    assert undefined(read(func(AB, f"{CONCAT}\n{IOTA}", "tensor<si32, ?T>", "i"))) == set()


@pytest.mark.parametrize(("extent", "shape", "missing"), [("2*N", ["N", 2], {}), ("N*M", [3], {"N", "M"}), ("N", ["T+1"], {"T"})])
def test_what_is_undefined_in_tiny_are_names_in_extents(extent: str, shape: list[int | str], missing: set[str]) -> None:
    graph = json.dumps({"uops": [
        {"id": "x", "uop": "INPUT", "arg": {"tensor_id": "x", "dtype": "i32", "shape": [extent]}},
        {"id": "one", "uop": "INPUT", "arg": {"tensor_id": "one", "dtype": "i32", "shape": []}},
        {"id": "y", "uop": "EXPAND", "src": ["one"], "arg": {"result_shape": shape}},
    ], "outputs": ["x", "y"]})  # fmt: skip
    assert {name for _, name in undefined(parse(graph, "tiny"))} == set(missing)


# Tiny: a RESHAPE or an EXPAND gives a symbol its number


def assert_graph_kept(seed: int) -> str:
    """What came of the graph: it does not run, its translation is refused, or all gives the same."""
    written, inputs = symbol_graph(seed)
    try:
        before = parse(written, "tiny")
        wanted = [*run(before, inputs, RunOptions(engine="reference")).values()]
    except (AssertionError, Rejected):  # two nodes would need two numbers of a symbol
        return "does not run"
    rng = random.Random(seed)
    for pipeline in ("canonicalize", "cse,dce", ",".join(rng.choices(sorted(names("tiny")), k=rng.randrange(1, 5)))):
        after = clone(before)
        run_pipeline(after, pipeline, PassContext(verify_each=True))
        assert_gives(parse(text(after), "tiny"), inputs, wanted, f"seed {seed}, {pipeline}")
    made = translated(before, "ptir").program
    if made is None:
        return "refused"
    assert_gives(made, inputs, wanted, f"seed {seed} in PTIR")
    back = translated(made, "tiny")
    if back.program is not None:
        constants = {name: from_literal(x) for name, x in back.constants.items()}
        assert_gives(back.program, inputs | constants, wanted, f"seed {seed} and back")
    return "same"


def assert_gives(program: Program, inputs: dict[str, Any], wanted: list[Any], what: str) -> None:
    found = [*run(program, inputs, RunOptions(engine="reference")).values()]
    assert len(found) == len(wanted)
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(got, want, err_msg=what)


def test_random_graphs_run_after_passes_and_translations() -> None:
    found = Counter(map(assert_graph_kept, range(120)))
    assert found["same"] > 100, found


@pytest.mark.slow
def test_many_random_graphs_run_after_passes_and_translations() -> None:
    found = Counter(map(assert_graph_kept, range(1000, 2000)))
    assert found["same"] > 850, found


def test_a_dead_reshape_that_defines_stays_in_tiny_and_in_ptir() -> None:
    graph = """{"uops": [
      {"id": "x", "uop": "INPUT", "arg": {"tensor_id": "x", "dtype": "i32", "shape": ["N", 3]}},
      {"id": "dead", "uop": "RESHAPE", "src": ["x"], "arg": {"result_shape": ["T"]}},
      {"id": "one", "uop": "INPUT", "arg": {"tensor_id": "one", "dtype": "i32", "shape": []}},
      {"id": "y", "uop": "EXPAND", "src": ["one"], "arg": {"result_shape": ["T"]}}
    ], "outputs": ["y"]}"""
    inputs = {"x": np.zeros((2, 3), np.int32), "one": np.array(7, np.int32)}
    program = parse(graph, "tiny")
    run_pipeline(program, "canonicalize,cse,dce,simplify")
    assert [op.result.name for op in program.main.body] == ["dead", "y"]
    assert_gives(program, inputs, [np.full(6, 7)], "tiny")
    made = translated(program, "ptir").program
    assert made is not None
    assert_gives(made, inputs, [np.full(6, 7)], "ptir")


def test_a_symbol_that_ptir_cannot_compute_is_refused() -> None:
    graph = """{"uops": [
      {"id": "x", "uop": "INPUT", "arg": {"tensor_id": "x", "dtype": "i32", "shape": ["N"]}},
      {"id": "y", "uop": "RESHAPE", "src": ["x"], "arg": {"result_shape": ["2*T"]}},
      {"id": "one", "uop": "INPUT", "arg": {"tensor_id": "one", "dtype": "i32", "shape": []}},
      {"id": "z", "uop": "EXPAND", "src": ["one"], "arg": {"result_shape": ["T"]}}
    ], "outputs": ["y", "z"]}"""
    assert translated(parse(graph, "tiny"), "ptir").errors == [("UnboundSymbol", "no PTIR op determines ?T")]


def test_a_square_gives_a_symbol_its_number() -> None:
    graph = """{"uops": [
      {"id": "x", "uop": "INPUT", "arg": {"tensor_id": "x", "dtype": "i32", "shape": ["N"]}},
      {"id": "y", "uop": "RESHAPE", "src": ["x"], "arg": {"result_shape": ["D", "D"]}}
    ]}"""
    program, x = parse(graph, "tiny"), np.arange(9, dtype=np.int32)
    assert_gives(program, {"x": x}, [x.reshape(3, 3)], "tiny")
    with pytest.raises(Rejected, match="10 elements are not D x D for any whole D"):
        run(program, {"x": np.arange(10, dtype=np.int32)}, RunOptions(engine="reference"))
