"""Plans and intervals in files: reading, holding a plan against its program, drawing."""

from __future__ import annotations

import copy
import json
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import ptir_tools as ptir
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.source import Source
from ptir_tools.plan import Plan, plan, to_svg
from ptir_tools.plan.check import faults
from ptir_tools.plan.codes import EXPLAIN
from ptir_tools.plan.intervals import read_csv
from ptir_tools.plan.record import plan_intervals
from ptir_tools.plan.write import as_dict
from tests.ptir.programs import programs

HEAD = "id,lower,upper,size\n"


def document(made: Plan) -> Any:
    """A plan as it comes out of a file."""
    return json.loads(json.dumps(as_dict(made)))


def intervals(text: str) -> tuple[Plan, list[str]]:
    diagnostics = Diagnostics(source := Source("x.csv", text))
    return plan_intervals(read_csv(source, diagnostics)), [d.message for d in diagnostics]


@settings(max_examples=40, deadline=None)
@given(programs())
def test_own_plans_are_right(program) -> None:
    made = plan(program)
    assert faults(document(made), made) == []


ROWS = st.lists(st.tuples(st.integers(0, 12), st.integers(1, 6), st.integers(1, 50)), min_size=2, max_size=12)


@settings(max_examples=50, deadline=None)
@given(ROWS, st.randoms(use_true_random=False))
def test_any_overlap_is_found(rows, random) -> None:
    made, wrong = intervals(HEAD + "".join(f"{i},{low},{low + n},{size}\n" for i, (low, n, size) in enumerate(rows)))
    assert not wrong and faults(document(made), made) == []
    given_ = document(made)
    buffers = given_["functions"][""]["buffers"]
    for b in buffers:
        b["offset"] = random.randrange(60)
    given_["functions"][""]["peak"] = 10**6
    clash = any(
        a["offset"] < b["offset"] + b["bytes"] and b["offset"] < a["offset"] + a["bytes"]
        for i, a in enumerate(buffers)
        for b in buffers[:i]
        if a["start"] <= b["end"] and b["start"] <= a["end"]
    )
    assert bool(faults(given_, made)) is clash


@pytest.mark.parametrize("key", ["bytes", "start", "end", "value", "usage", "offset"])
@settings(max_examples=15, deadline=None)
@given(program=programs(), choice=st.integers(0, 10**6))
def test_a_changed_buffer_is_found(key, program, choice) -> None:
    made = plan(program)
    placed = [(f, i) for f, block in made.functions.items() for i, b in enumerate(block.buffers) if b in set(block.placed())]
    assume(placed)
    name, i = placed[choice % len(placed)]
    given_ = document(made)
    row = given_["functions"][name]["buffers"][i]
    assume(key != "bytes" or row["bytes"])
    worse = {"bytes": row["bytes"] - 1, "start": row["end"] + 1, "end": row["start"] - 1, "offset": row["offset"] + 1}
    row[key] = worse.get(key, "other")
    assert faults(given_, made)


@pytest.mark.parametrize("key", ["bytes", "start", "end", "value", "usage", "offset"])
def test_a_changed_buffer_of_a_region_is_found(key) -> None:
    lines = ["%a = neg(%c) -> tensor<f32, 3>", "%b = exp(%x) -> tensor<f32, 3>", "%d = mul(%a, %b) -> tensor<f32, 3>"]
    body = "\n    ".join([*lines, "%e = add(%d, %c) -> tensor<f32, 3>", "return %e"])
    text = "  func @main(%c: tensor<f32, 3>, %x: tensor<f32, 4x3>) -> tensor<f32, 3> {\n    %y = scan(%c, %x) body_region[^r]"
    text += " carry_count[1] scan_output_count[0] -> tensor<f32, 3>\n    return %y\n  }\n"
    text += f"  region ^r(%c: tensor<f32, 3>, %x: tensor<f32, 3>) -> tensor<f32, 3> {{\n    {body}\n  }}\n"
    made = plan(ptir.read(f"program @main (spec_version = ptir.v0.4) {{\n{text}}}\n"))
    ((region, block),) = made.regions.items()
    placed = {*block.placed()}
    assert placed and not faults(document(made), made)
    for i, b in enumerate(block.buffers):
        if b in placed:
            given_ = document(made)
            row = given_["regions"][region.name]["buffers"][i]
            worse = {"bytes": row["bytes"] - 1, "start": row["end"] + 1, "end": row["start"] - 1, "offset": row["offset"] + 1}
            row[key] = worse.get(key, "other")
            assert faults(given_, made)


@settings(max_examples=30, deadline=None)
@given(program=programs())
def test_a_buffer_beyond_the_peak_is_found(program) -> None:
    made = plan(program)
    for name, block in made.functions.items():
        given_ = document(made)
        end = max((b.offset + b.nbytes for b in block.placed() if b.offset is not None), default=0)
        if end:
            given_["functions"][name]["peak"] = end - 1
            assert faults(given_, made)


@pytest.mark.parametrize("given_", [None, [], {}, {"align": 0}, {"align": True}, {"align": 1}, {"align": 1, "functions": []}])
def test_what_is_no_plan_at_all(given_: object) -> None:
    made, _ = intervals(HEAD + "a,0,1,5\n")
    assert faults(given_, made)
    for key in ("peak", "buffers"):
        broken = copy.deepcopy(document(made))
        broken["functions"][""][key] = "much"
        assert faults(broken, made)


def test_intervals_are_half_open() -> None:
    made, wrong = intervals("size,id,upper,lower\n7,a,4,0\n\n7,b,9,4\n")
    assert wrong == [] and made.functions[""].peak == 7


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("a,0,1", "3 columns"),
        ("a,4,4,1", "empty"),
        ("a,5,4,1", "empty"),
        ("a,0,1,-1", "negative"),
        ("a,0,1.5,1", "not an integer"),
        ("x,0,1,1", "twice"),
    ],
)
def test_a_line_that_is_no_interval(line: str, said: str) -> None:
    made, (wrong,) = intervals(f"{HEAD}x,0,1,1\n{line}\ny,0,1,1\n")
    assert said in wrong
    assert [b.name for b in made.functions[""].buffers] == ["x", "y"]


@pytest.mark.parametrize("code", [c for c in EXPLAIN if (c.wrong or "").startswith("id,")], ids=lambda c: c.code)
def test_the_examples_of_the_codes(code) -> None:
    assert len(intervals(code.wrong)[1]) == 1
    assert intervals(code.right)[1] == []


@settings(max_examples=20, deadline=None)
@given(programs())
def test_a_drawing_is_well_formed_and_has_every_piece(program) -> None:
    made = plan(program)
    drawn = ElementTree.fromstring("".join(to_svg(made)))
    pieces = [b for block in (*made.functions.values(), *made.regions.values()) for b in block.placed() if b.nbytes]
    assert len(drawn.findall("{http://www.w3.org/2000/svg}g")) == len(pieces)
