"""Meshes of devices: what `--mesh` and `--shard` mean, which cuts there are, and the plan of one device. JAX is not needed; what
runs on several devices is in tests/bridges/xla/test_jax_mesh.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import prod
from pathlib import Path

import pytest

import ptir_tools as ptir
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.symbols import specialize
from ptir_tools.engines.compare import small_sizes
from ptir_tools.plan import Plan, mesh
from ptir_tools.plan.liveness import leaves
from ptir_tools.tools import fuzz
from tests.conftest import TESTDATA, Ran

MLP = (TESTDATA / "plan" / "mlp.ptir").read_text()
CUTS = ("x=x,-", "w=-,y", "v=y")


def cuts(made: Plan) -> dict[str, str]:
    """How the values of the entry are cut, where they are not whole."""
    block = made.functions["main"]
    return {b.name: ",".join("+".join(axes) or "-" for axes in spec) for b, spec in block.cuts.items()}


def planned(text: str, mesh: str, *specs: str) -> Plan:
    return ptir.plan(ptir.read(text), sharding=ptir.sharding(mesh, *specs))


def test_a_plan_is_that_of_one_device() -> None:
    made = planned(MLP, "x=4,y=2", *CUTS)
    assert cuts(made) == {
        "x": "x,-",
        "w": "-,y",
        "v": "y,-",
        "h": "x,y",
        "t": "x,y",
        "y": "x,-",
        "r": "x,-",
        "b": "x,-",
        "z": "x,-",
    }
    block = made.functions["main"]
    assert block.nbytes("parameter") == 4 * (2 * 16 + 16 * 16 + 16 * 4)
    assert block.nbytes("result") == 4 * 2 * 4
    assert block.peak == 2 * 16 * 4  # %h; %t is written over it
    assert not block.faults()


def test_without_a_cut_every_device_has_everything() -> None:
    alone, each = ptir.plan(ptir.read(MLP)).functions["main"], planned(MLP, "x=4,y=2").functions["main"]
    assert (each.total, each.peak) == (alone.total, alone.peak)
    assert {b.offset for b in each.buffers} == {b.offset for b in alone.buffers}


OPS = {
    "transpose": ("a: 4x6x8", "transpose(%a) perm[2, 0, 1]", "8x4x6", "x,-,y", "y,x,-"),
    "split": ("a: 4x6x8", "reshape(%a) new_shape[4, 6, 2, 4]", "4x6x2x4", "-,-,y", "-,-,y,-"),
    "split too small": ("a: 4x6x8", "reshape(%a) new_shape[4, 6, 2, 4]", "4x6x2x4", "-,-,x", "-,-,-,-"),
    "merge, outer": ("a: 4x6x8", "reshape(%a) new_shape[24, 8]", "24x8", "x,-,y", "x,y"),
    "merge, inner": ("a: 4x6x8", "reshape(%a) new_shape[24, 8]", "24x8", "-,y,x", "-,x"),
    "broadcast": ("a: 1x8", "broadcast_to(%a) result_shape[4, 8]", "4x8", "-,x", "-,x"),
    "slice": ("a: 4x8", "slice(%a) starts[0, 2] sizes[4, 4]", "4x4", "x,y", "x,-"),
    "sum": ("a: 4x8", "reduce_sum(%a) axes[1] keepdims[false]", "4", "x,y", "x"),
    "max": ("a: 4x8", "reduce_max(%a) axes[0] keepdims[true]", "1x8", "x,y", "-,y"),
    "cumsum": ("a: 4x8", "cumsum(%a) axis[1]", "4x8", "x,y", "x,-"),
    "concat": ("a: 4x8", "concat(%a, %a) axis[1]", "4x16", "x,y", "x,-"),
    "pad": ("a: 4x8", "pad(%a) low[0, 1] high[0, 1]", "4x10", "x,y", "x,-"),
    "elementwise": ("a: 4x8", "exp(%a)", "4x8", "x+y,-", "-,-"),
    "elementwise by two axes": ("a: 8x4", "exp(%a)", "8x4", "x+y,-", "x+y,-"),
}


# Results that are other shapes or strides of what a device has of `a`.
VIEWS = ("transpose", "split", "merge, outer", "broadcast")


@pytest.mark.parametrize("case", OPS)
def test_what_an_op_makes_is_cut_as_its_operand(case: str) -> None:
    param, op, shape, given, wanted = OPS[case]
    name, _, extents = param.partition(": ")
    made_here = f"  %r = {op} -> tensor<f32, {shape}>\n  return %r\n"
    text = f"func @main(%{name}: tensor<f32, {extents}>) -> tensor<f32, {shape}> {{\n{made_here}}}\n"
    if "x+y" in given and extents.startswith("4"):
        with pytest.raises(ptir.Rejected, match="8 devices do not share equally"):
            planned(text, "x=4,y=2", f"{name}={given}")
        return
    made = planned(text, "x=4,y=2", f"{name}={given}")
    assert cuts(made).get("r", ",".join("-" for _ in wanted.split(","))) == wanted
    sizes = {"x": 4, "y": 2}
    parts = prod(sizes[a] for axes in wanted.split(",") if axes != "-" for a in axes.split("+"))
    own = 4 * prod(map(int, shape.split("x"))) // parts
    assert made.functions["main"].nbytes("result") == (0 if case in VIEWS else own)


def test_a_take_is_cut_by_its_indices_and_columns() -> None:
    text = (
        "func @main(%a: tensor<f32, 9x8>, %i: tensor<si32, 4x6>) -> tensor<f32, 4x6x8> {\n"
        "  %r = take(%a, %i) -> tensor<f32, 4x6x8>\n  return %r\n}\n"
    )
    assert cuts(planned(text, "x=4,y=2", "a=-,y", "i=x"))["r"] == "x,-,y"


def test_an_axis_of_one_device_cuts_nothing_up() -> None:
    alone, each = ptir.plan(ptir.read(MLP)).functions["main"], planned(MLP, "x=1,y=1", *CUTS).functions["main"]
    assert (each.total, each.peak) == (alone.total, alone.peak)


def test_an_axis_of_the_mesh_is_used_once_in_a_product() -> None:
    assert cuts(planned(MLP, "x=4", "x=x", "w=-,x"))["h"] == "x,-"


def test_what_is_named_keeps_its_cut() -> None:
    assert cuts(planned(MLP, "x=4", "x=x"))["h"] == "x,-"
    assert "h" not in cuts(planned(MLP, "x=4", "x=x", "h=-"))


def test_a_cut_of_a_result_reaches_what_it_is_made_of() -> None:
    made = cuts(planned(MLP, "x=4,y=2", "z=x"))
    assert made == {"h": "x,-", "t": "x,-", "y": "x,-", "r": "x,-", "b": "x,-", "z": "x,-"}  # the inputs are whole as before


def test_cuts_go_to_and_fro_until_nothing_changes() -> None:
    text = (
        "func @main(%a: tensor<f32, 8x6>, %w: tensor<f32, 6x4>) -> (tensor<f32, 8x4>, tensor<f32, 8>) {\n"
        "  %e = exp(%a) -> tensor<f32, 8x6>\n  %n = neg(%e) -> tensor<f32, 8x6>\n"
        "  %p = dot_general(%n, %w) contract_lhs[1] contract_rhs[0] -> tensor<f32, 8x4>\n"
        "  %s = reduce_sum(%e) axes[1] keepdims[false] -> tensor<f32, 8>\n  return %p, %s\n}\n"
    )
    assert cuts(planned(text, "x=4,y=2", "p=x,-")) == {"p": "x,-", "n": "x,-", "e": "x,-", "s": "x"}
    assert cuts(planned(text, "x=4,y=2", "w=y", "s=x")) == {"w": "y,-", "n": "x,y", "e": "x,y", "s": "x", "p": "x,-"}


WRONG = {
    "an axis that is not there": (("x=z",), "the mesh x=4,y=2 has no axis z"),
    "an axis twice": (("x=x,x",), "axis x of the mesh is used 2 times"),
    "an axis twice in one cut": (("w=x+x",), "axis x of the mesh is used 2 times"),
    "uneven": (("v=-,x+y",), "axis 1 has 4 elements, which 8 devices do not share equally"),
    "too many axes": (("x=x,-,y",), "it has 2 axes, and 3 are given"),
    "an unknown name": (("xx=x",), "no input, result or value is called `xx`"),
    "a pattern that matches nothing": (("q*=x",), "no input, result or value is called `q*`"),
    "two ways": (("x=x", "x=y"), "it is cut as x,-, too"),
    "the second time alone": (("x=x", "x=y,y"), "axis y of the mesh is used 2 times"),
}


@pytest.mark.parametrize(("specs", "message"), WRONG.values(), ids=WRONG)
def test_a_cut_that_cannot_be_is_reported(specs: tuple[str, ...], message: str) -> None:
    with pytest.raises(ptir.Rejected) as caught:
        planned(MLP, "x=4,y=2", *specs)
    (found,) = caught.value.diagnostics
    assert found.code == "InvalidSharding"
    assert message in found.message


def test_all_that_is_wrong_is_reported_at_once(ptir: Callable[..., Ran], tmp_path: Path) -> None:
    (tmp_path / "p.ptir").write_text(MLP)
    for command in (("plan",), ("run", "--random", "0", "--engine", "xla")):
        ran = ptir(*command, tmp_path / "p.ptir", "--mesh", "x=3", "--shard", "x=x", "--shard", "w=-,q", "--shard", "f=x")
        if "needs JAX" in ran.err:
            continue
        assert ran.status == 1
        assert ran.err.count("error[InvalidSharding]") == 3


def test_names_may_be_patterns_and_constants_and_results() -> None:
    text = (
        "func @main(%x: tensor<f32, 4x8>) -> (tensor<f32, 4x8>, tensor<f32, 4x8>) {\n"
        "  %l0.w = constant() value[dense<2.0>] -> tensor<f32, 4x8>\n  %l1.w = constant() value[dense<3.0>] -> tensor<f32, 4x8>\n"
        "  %a = add(%x, %l0.w) -> tensor<f32, 4x8>\n  %b = add(%x, %l1.w) -> tensor<f32, 4x8>\n  return %a, %b as out\n}\n"
    )
    made = planned(text, "x=4", "*.w=x", "out=-,x")
    assert cuts(made) == {"l0.w": "x,-", "l1.w": "x,-", "a": "x,-", "b": "-,x"}
    assert made.functions["main"].nbytes("constant") == 2 * 4 * 8


@pytest.mark.parametrize(
    "options",
    [
        ("--mesh", "x"),
        ("--mesh", "x=0"),
        ("--mesh", "x=2,x=2"),
        ("--mesh", ""),
        ("--shard", "x=x"),
        ("--mesh", "x=2", "--shard", "x"),
    ],
)
def test_what_is_no_mesh_is_wrong_usage(ptir: Callable[..., Ran], tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "p.ptir").write_text(MLP)
    assert ptir("plan", tmp_path / "p.ptir", *options).status == 2


@pytest.mark.parametrize("extent", [0, -1, 1])
def test_a_mesh_has_a_device_along_each_axis(extent: int) -> None:
    if extent == 1:
        assert mesh.Mesh({"x": 2, "y": extent}).devices == 2
    else:
        with pytest.raises(ptir.UsageError, match="axis y of the mesh has no device"):
            mesh.Mesh({"x": 2, "y": extent})


def test_a_mesh_is_for_one_engine_and_no_cores(ptir: Callable[..., Ran], tmp_path: Path) -> None:
    (tmp_path / "p.ptir").write_text(MLP)
    ran = ptir("run", tmp_path / "p.ptir", "--random", "0", "--engine", "numpy", "--mesh", "x=4")
    assert ran.status == 2
    assert "a mesh is for `xla`" in ran.err
    ran = ptir("plan", "testdata/pto/01_vector_add_subview.pto", "--mesh", "x=4")
    assert ran.status == 2
    assert "on one core" in ran.err
    ran = ptir("run", tmp_path / "p.ptir", "--random", "0", "--hosts", "localhost:1,2,0")
    assert ran.status == 2
    ran = ptir("run", tmp_path / "p.ptir", "--random", "0", "--mesh", "x=4", "--hosts", "localhost:1,2,2")
    assert ran.status == 2


def test_the_plan_of_a_device_as_json_is_checked(ptir: Callable[..., Ran], tmp_path: Path) -> None:
    (tmp_path / "p.ptir").write_text(MLP)
    given = ("--mesh", "x=4,y=2", *(word for spec in CUTS for word in ("--shard", spec)))
    ran = ptir("plan", tmp_path / "p.ptir", *given, "--to", "json", "-o", tmp_path / "plan.json")
    assert ran.status == 0, ran.err
    found = json.loads((tmp_path / "plan.json").read_text())
    assert found["mesh"] == {"x": 4, "y": 2}
    assert found["functions"]["main"]["buffers"][3]["sharding"] == [["x"], ["y"]]
    assert found["functions"]["main"]["total"] == 1568
    assert ptir("plan", tmp_path / "p.ptir", *given, "--check-plan", tmp_path / "plan.json").status == 0
    assert ptir("plan", tmp_path / "p.ptir", "--check-plan", tmp_path / "plan.json").status == 1  # one device alone needs more


def test_the_text_shows_what_each_device_takes(ptir: Callable[..., Ran], tmp_path: Path) -> None:
    (tmp_path / "p.ptir").write_text(MLP)
    ran = ptir("plan", tmp_path / "p.ptir", "--mesh", "x=4,y=2", *(word for spec in CUTS for word in ("--shard", spec)))
    assert "each of the 8 devices of x=4,y=2 takes 1568 bytes" in ran.text
    assert ran.text.splitlines()[3].split() == ["value", "bytes", "live", "offset", "usage", "alias", "sharding"]


def test_a_program_of_another_ir_is_planned_too(ptir: Callable[..., Ran]) -> None:
    ran = ptir("plan", "testdata/mind/02_mlp_relu.mind.ir", "--mesh", "x=2")
    assert ran.status == 0, ran.err
    assert "each of the 2 devices" in ran.text


TUPLES = """func @main(
  %t: (tensor<f32, 8x4>, tensor<f32, 8x4>), %c: tensor<f32, 8x4>
) -> (tensor<f32, 8x4>, tensor<f32, 8x2>, tensor<si32, 8x2>, tensor<f32, 2>) {
  %a = add(%t[0], %t[1]) -> tensor<f32, 8x4>
  %b = mul(%a, dense<2.0> : tensor<f32, 8x4>) -> tensor<f32, 8x4>
  %k = top_k(%c) k[2] -> (tensor<f32, 8x2>, tensor<si32, 8x2>)
  %e = exp(%k[0]) -> tensor<f32, 8x2>
  return %b, %e, %k[1] as places, dense<1.0> : tensor<f32, 2>
}
"""


def test_elements_of_tuples_are_cut_by_their_names() -> None:
    made = cuts(planned(TUPLES, "x=4,y=2", "t.1=x,y"))
    assert made == {"t.1": "x,y", "a": "x,y", "b": "x,y"}
    assert cuts(planned(TUPLES, "x=4", "k.0=x")) == {"k.0": "x,-", "e": "x,-"}
    assert cuts(planned(TUPLES, "x=4", "places=x")) == {"k.1": "x,-"}
    assert cuts(planned(TUPLES, "x=4", "e=x")) == {"e": "x,-"}  # nothing is said of what gives several values
    with pytest.raises(ptir.Rejected, match=r"`k.1`.*cannot be cut as -,x"):
        planned(TUPLES, "x=4", "k.1=-,x")


def test_an_inline_constant_is_whole_and_cuts_nothing() -> None:
    assert cuts(planned(TUPLES, "y=2", "b=-,y")) == {"b": "-,y", "a": "-,y"}


def test_where_cuts_are_is_told_by_position_and_name() -> None:
    program = ptir.read(TUPLES)
    asked = ptir.sharding("x=4,y=2", "t.1=x,y", "a=x", "k.0=-,y", "places=x")
    found = mesh.placing(program, mesh.placed(program, asked, Diagnostics()))
    assert found.inputs == (None, (("x",), ("y",)), None)
    assert found.results == (None, None, (("x",), ()), None)
    assert found.values == {"a": (("x",), ())}
    program = ptir.read(MLP)
    found = mesh.placing(program, mesh.placed(program, ptir.sharding("x=4", "w=-,x", "z=x"), Diagnostics()))
    assert found.inputs == (None, ((), ("x",)), None) and found.results == ((("x",), ()),)


@pytest.mark.parametrize("seed", range(12))
def test_cuts_of_random_programs_are_even_and_kept_and_lead_to_no_more(seed: int) -> None:
    program = fuzz.generated("ptir", seed, 20)
    specialize(program, small_sizes(program, {}))
    block, grid = program.main, mesh.Mesh({"x": 2})
    named = {leaf: t for op in block.body for v in op.results for path, t in leaves(v.type) for leaf in [(v, path)]}
    named |= {(p, path): t for p in block.params for path, t in leaves(p.type)}
    even = [(leaf, axis) for leaf, t in named.items() for axis, n in enumerate(t.static_shape) if n % 2 == 0 < n]
    for leaf, axis in even[:: max(1, len(even) // 6)]:
        wanted = {leaf: tuple(("x",) if i == axis else () for i in range(named[leaf].rank))}
        found = mesh.spread(block, grid, wanted)
        assert found[leaf] == wanted[leaf]
        for (v, path), spec in found.items():
            t = named[v, path]
            assert len(spec) == t.rank and sum(map(len, spec)) <= 1
            assert all(n % grid.parts(axes) == 0 for n, axes in zip(t.static_shape, spec, strict=True))
            assert (v, path) in wanted or not any(spec) or (v.op is not None and not v.op.defn.is_constant)
        for op in block.body:
            assert not mesh._cut_more(op, grid, found, wanted)
