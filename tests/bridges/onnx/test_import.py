"""ONNX in: models made here and the node tests of the package `onnx`, held to NumPy and to ONNX's reference evaluator."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import warnings
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools.bridges.onnx import wire
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.core.source import Source
from ptir_tools.dialects import reading
from tests.conftest import ROOT, run_ptir

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

ENGINES = ("reference", "numpy", "native")
F, I32, I64, BOOL = 1, 6, 7, 9  # numbers of dtypes


def model(
    nodes: list[Any], inputs: dict[str, Any], outputs: list[str], weights: dict[str, Any] | None = None, opset: int = 21
) -> Any:
    """A ModelProto; an input is (dtype, extents), or a list of extents of f32."""
    typed = {k: v if isinstance(v, tuple) else (F, v) for k, v in inputs.items()}
    given = [helper.make_tensor_value_info(k, dtype, shape) for k, (dtype, shape) in typed.items()]
    made = [helper.make_tensor_value_info(k, 0, None) for k in outputs]
    kept = [numpy_helper.from_array(v, k) for k, v in (weights or {}).items()]
    graph = helper.make_graph(nodes, "g", given, made, kept)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def evaluated(m: Any, feeds: dict[str, Any]) -> list[Any]:
    """The outputs by ONNX's own evaluator."""
    from onnx.reference import ReferenceEvaluator

    return list(ReferenceEvaluator(m).run(None, feeds))


def same(m: Any, feeds: dict[str, Any], rtol: float = 1e-5, **options: Any) -> Any:
    """The program of a model, after each engine gave what ONNX's evaluator gives."""
    wanted, program = evaluated(m, feeds), ptir.from_onnx(m, **options)
    for engine in ENGINES:
        found = list(
            ptir.run(program, {k: v for k, v in feeds.items() if k not in options.get("constants", ())}, engine=engine).values()
        )
        for x, y in zip(found, wanted, strict=True):
            assert x.dtype == np.asarray(y).dtype
            np.testing.assert_allclose(x, y, rtol=rtol, atol=1e-5)
    return program


def noise(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def node(op: str, inputs: str, outputs: str, **attrs: Any) -> Any:
    """A node; operands are divided by blanks, `_` is one that is left out."""
    return helper.make_node(
        op, [x if x != "_" else "" for x in inputs.split()], outputs.split(), name=f"n_{outputs.split()[0]}", **attrs
    )


def small() -> Any:
    """A matrix product, a bias, an activation, and a shape that is computed."""
    nodes = [
        node("MatMul", "x w", "h"), node("Add", "h b", "a"), node("Relu", "a", "r"), node("Shape", "r", "s"),
        node("Gather", "s zero", "n"), node("Unsqueeze", "n axes", "n1"), node("Concat", "n1 tail", "sh", axis=0),
        node("Reshape", "r sh", "y/out"),
    ]  # fmt: skip
    weights = {
        "w": noise(4, 8), "b": noise(8), "zero": np.array(0), "axes": np.array([0]), "tail": np.array([2, -1]),
    }  # fmt: skip
    return model(nodes, {"x": ["N", 4]}, ["y/out"], weights)


def test_a_model_runs_from_its_file_and_symbols_are_its_dynamic_axes(tmp_path: Path) -> None:
    path = tmp_path / "program"  # recognized by content
    onnx.save(small(), path)
    program = ptir.read(path)
    assert [str(p.type) for p in program.main.params] == ["tensor<f32, ?Nx4>"]
    assert "shape" not in {op.defn.short for op in program.main.body} and program.format == "ptir"
    same(small(), {"x": noise(3, 4)})
    info = run_ptir("info", str(path))
    assert info.status == 0 and "output  y/out  tensor<f32, ?Nx2x4>" in info.text and "symbols   N" in info.text
    ran = run_ptir("run", str(path), "--random", "0", "--bind", "N=2", "--compare", "reference")
    assert ran.status == 0 and ran.text.startswith("y/out: tensor<f32, 2x2x4>")
    for command in (
        ("verify",),
        ("opt",),
        ("plan", "--bind", "N=2"),
        ("graph",),
        ("stats",),
        ("hash",),
        ("verify", "--split-input"),
    ):
        assert run_ptir(command[0], str(path), *command[1:]).status == 0
    written = run_ptir("translate", str(path), "--to", "ptir", "--weights-to", str(tmp_path / "w.safetensors"))
    assert "dense<@w.safetensors:w>" in written.text and 'return %y_out as "y/out"' in written.text


def test_onnx_runtime_is_the_other_side_of_a_comparison(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    path, m = tmp_path / "m.onnx", small()
    m.graph.output[0].type.tensor_type.elem_type = F
    onnx.save(m, path)
    assert run_ptir("run", str(path), "--random", "0", "--bind", "N=2", "--compare", "onnxruntime").status == 0
    text = run_ptir("translate", str(path), "--to", "ptir").text
    ran = run_ptir("run", "--random", "0", "--bind", "N=2", "--compare", "onnxruntime", stdin=text.encode())
    assert ran.status == 0  # written as ONNX first
    m.ir_version = onnx.IR_VERSION  # which may be newer than what the runtime reads
    onnx.save(m, path)
    assert run_ptir("run", str(path), "--random", "0", "--bind", "N=2", "--compare", "onnxruntime").status == 0


def test_everything_that_cannot_be_expressed_is_reported_at_once(tmp_path: Path) -> None:
    nodes = [
        node("Unique", "x", "a"), node("Relu", "a", "b"), node("Bernoulli", "x", "c"), node("Relu", "x", "y"),
        node("Unique", "b", "d"), node("Frobnicate", "x", "e"),
    ]  # fmt: skip
    (tmp_path / "m.onnx").write_bytes(model(nodes, {"x": [2, 3]}, ["y", "d", "e"]).SerializeToString())
    ran = run_ptir("verify", str(tmp_path / "m.onnx"), "--diagnostics", "short")
    lines = ran.err.splitlines()
    assert ran.status == 1
    assert [line.partition("UnsupportedOnnx]: ")[2].split(" (node")[0] for line in lines] == [
        "Unique: the extent of the result depends on data",
        "Bernoulli: it draws random numbers, which no other engine repeats",
        "Unique: the extent of the result depends on data",
        "there is no operator Frobnicate in operator set 21",
    ]
    assert "(node `n_a`)" in ran.err and "m.onnx:2:5" in ran.err


@pytest.mark.parametrize("dtype", [TensorProto.STRING, TensorProto.UINT2, TensorProto.FLOAT8E4M3FNUZ])
def test_types_that_ptir_has_not_are_refused(dtype: int) -> None:
    with pytest.raises(ptir.Rejected, match="PTIR has no"):
        ptir.from_onnx(model([node("Identity", "x", "y")], {"x": (dtype, [2])}, ["y"]))


def test_what_decides_a_type_must_be_known(tmp_path: Path) -> None:
    m = model([node("Reshape", "x s", "y")], {"x": [2, 6], "s": (I64, [2])}, ["y"])
    path = tmp_path / "m.onnx"
    path.write_bytes(m.SerializeToString())
    ran = run_ptir("verify", str(path))
    assert ran.status == 1 and "OnnxNeedsConstant" in ran.err and "--set NAME=" in ran.err
    ran = run_ptir("info", str(path), "--set", "s=[3,4]")
    assert ran.status == 0 and "tensor<f32, 3x4>" in ran.text and "  input   s" not in ran.text
    for bad in ("s=[3]", "s=three"):
        assert run_ptir("info", str(path), "--set", bad).status == 2
    same(m, {"x": noise(2, 6), "s": np.array([4, 3])}, constants={"s": [4, 3]})


def test_external_data_is_read_from_the_folder_of_the_model_only(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    m = model([node("MatMul", "x w", "y")], {"x": [2, 64]}, ["y"], {"w": noise(64, 64)})
    wanted = evaluated(m, {"x": noise(2, 64)})[0]
    onnx.save(m, path, save_as_external_data=True, location="w.bin", size_threshold=16)
    found = ptir.run(ptir.from_onnx(path), [noise(2, 64)])["y"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    (tmp_path / "w.bin").write_bytes(b"short")
    with pytest.raises(ptir.Rejected, match="cannot be read from"):
        ptir.read(path)
    text = path.read_bytes().replace(b"w.bin", b"../ww")
    path.write_bytes(text)
    with pytest.raises(ptir.Rejected, match="outside of the model's folder"):
        ptir.read(path)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    data = small().SerializeToString()
    for n in range(20, len(data), 37):
        (tmp_path / "m.onnx").write_bytes(data[:n])
        ran = run_ptir("verify", str(tmp_path / "m.onnx"))
        assert ran.status == 1 and ran.err.startswith("error[")
    assert "InvalidModel" in run_ptir("verify", "--from", "onnx", str(ROOT / "README.md")).err
    for command in ("fmt", "fix"):
        (tmp_path / "m.onnx").write_bytes(data)
        assert run_ptir(command, str(tmp_path / "m.onnx")).status == 2


def test_without_the_package_the_message_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(small().SerializeToString())
    code = "import sys; sys.modules['onnx'] = None; sys.argv = ['ptir', 'verify', 'm.onnx']\n"
    code += "from ptir_tools.__main__ import main; sys.exit(main())"
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert ran.returncode == 2 and "this is ONNX: pip install 'ptir-tools[onnx]'" in ran.stderr


CONVOLUTIONS = {
    "plain": ([1, 3, 9, 8], [5, 3, 3, 3], {"pads": [1, 1, 1, 1]}),
    "strided": ([2, 4, 9, 8], [6, 4, 3, 2], {"strides": [2, 3], "dilations": [2, 1], "pads": [1, 0, 2, 1]}),
    "grouped": ([1, 6, 5, 5], [4, 3, 3, 3], {"group": 2}),
    "depthwise": ([1, 4, 6, 6], [4, 1, 3, 3], {"group": 4, "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    "multiplied": ([1, 2, 6, 6], [6, 1, 3, 3], {"group": 2, "auto_pad": "SAME_LOWER"}),
    "line": ([2, 3, 10], [4, 3, 4], {"auto_pad": "VALID"}),
    "cube": ([1, 2, 4, 5, 4], [3, 2, 2, 2, 2], {}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_are_one_product_whatever_the_groups(name: str) -> None:
    x, w, attrs = CONVOLUTIONS[name]
    m = model([node("Conv", "x w b", "y", **attrs)], {"x": x}, ["y"], {"w": noise(*w), "b": noise(w[0])})
    program = same(m, {"x": noise(*x)})
    assert sum(op.defn.short == "dot_general" for op in program.main.body) == 1
    assert len(program.main.body) < 20


def _body(nodes: list[Any], inputs: dict[str, Any], outputs: list[tuple[str, int, list[int]]]) -> Any:
    given = [helper.make_tensor_value_info(k, *v) for k, v in inputs.items()]
    return helper.make_graph(nodes, "body", given, [helper.make_tensor_value_info(*o) for o in outputs])


@pytest.mark.parametrize("flag", [True, False])
def test_if_chooses_when_the_program_runs(flag: bool) -> None:
    yes = _body([node("Mul", "x w", "t")], {}, [("t", F, [3])])
    no = _body([node("Sub", "x x2", "e")], {}, [("e", F, [3])])
    nodes = [node("Neg", "x", "x2"), node("If", "p", "y", then_branch=yes, else_branch=no)]
    m = model(nodes, {"p": (9, []), "x": [3]}, ["y"], {"w": noise(3)})
    assert len(same(m, {"p": np.array(flag), "x": noise(3)}).regions) == 2


def test_a_loop_that_data_end_is_a_while() -> None:
    body = _body(
        [node("Add", "v step", "v_out"), node("ReduceSum", "v_out", "total", keepdims=0), node("Less", "total limit", "on")],
        {"i": (I64, []), "c": (9, []), "v": (F, [2])},
        [("on", 9, []), ("v_out", F, [2])],
    )
    m = model([node("Loop", "_ go v0", "y", body=body)], {"go": (9, []), "v0": [2], "limit": [], "step": [2]}, ["y"])
    feeds = {"go": np.array(True), "v0": np.zeros(2, np.float32), "limit": np.float32(7), "step": np.ones(2, np.float32)}
    program = same(m, feeds)
    assert [op.defn.short for op in program.main.body if op.regions] == ["while"]


def test_a_loop_of_known_steps_is_a_scan_with_what_it_sees_outside() -> None:
    body = _body(
        [node("Mul", "v s", "v_out"), node("Identity", "v_out", "out"), node("Identity", "c", "c_out")],
        {"i": (I64, []), "c": (9, []), "v": (F, [2])},
        [("c_out", 9, []), ("v_out", F, [2]), ("out", F, [2])],
    )
    weights = {"m": np.array(5), "go": np.array(True)}
    m = model([node("Loop", "m go v0", "y all", body=body)], {"v0": [2], "s": [2]}, ["y", "all"], weights)
    program = same(m, {"v0": noise(2), "s": noise(2)})
    assert [op.defn.short for op in program.main.body if op.regions] == ["scan"]


@pytest.mark.parametrize("known", [True, False])
def test_a_loop_of_no_steps_stacks_nothing(known: bool) -> None:
    """Whether its condition is passed on or computed."""
    on = node("Identity", "c", "on") if known else node("Less", "total limit", "on")
    nodes = [node("Add", "v v", "v_out"), node("ReduceSum", "v", "total", keepdims=0), node("Cast", "v", "out", to=I64), on]
    params = {"i": (I64, []), "c": (9, []), "v": (F, [2])}
    body = _body(nodes, params, [("on", 9, []), ("v_out", F, [2]), ("out", I64, [2])])
    weights = {"m": np.array(0), "go": np.array(True)}
    program = ptir.from_onnx(
        model([node("Loop", "m go v0", "y all", body=body)], {"v0": [2], "limit": []}, ["y", "all"], weights)
    )
    for engine in ENGINES:
        y, stacked = ptir.run(program, [noise(2), np.float32(9)][: len(program.main.params)], engine=engine).values()
        assert np.array_equal(y, noise(2)) and stacked.shape == (0, 2) and stacked.dtype == np.int64


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_recurrent_networks_keep_to_the_lengths_of_their_sequences(kind: str) -> None:
    """Against a loop over each sequence by itself, in float64."""
    gates, hidden = {"RNN": 1, "GRU": 3, "LSTM": 4}[kind], 4
    x, w, r, b = noise(5, 2, 3), noise(2, gates * hidden, 3), noise(2, gates * hidden, hidden), noise(2, 2 * gates * hidden)
    more = " y_c" if kind == "LSTM" else ""
    whole = model(
        [node(kind, "x w r b lengths", f"y y_h{more}", hidden_size=hidden, direction="bidirectional")],
        {"x": [5, 2, 3], "lengths": (TensorProto.INT32, [2])}, ["y", "y_h"], {"w": w, "r": r, "b": b},
    )  # fmt: skip
    lengths = np.array([5, 3], np.int32)
    found = ptir.run(ptir.from_onnx(whole), {"x": x, "lengths": lengths}, engine="numpy")
    for k, n in enumerate(lengths):
        one = model(
            [node(kind, "x w r b", "y y_h", hidden_size=hidden, direction="bidirectional")],
            {"x": [int(n), 1, 3]}, ["y", "y_h"], {"w": w, "r": r, "b": b}, opset=14,
        )  # fmt: skip
        y, y_h = evaluated(one, {"x": x[:n, k : k + 1]})
        np.testing.assert_allclose(found["y"][:n, :, k], y[:, :, 0], rtol=1e-4, atol=1e-5)
        assert not found["y"][n:, :, k].any()
        np.testing.assert_allclose(found["y_h"][:, k], y_h[:, 0], rtol=1e-4, atol=1e-5)


def test_casts_of_integers_wrap_and_of_floats_to_fp8_saturate() -> None:
    wide = np.array([0, 1, -1, 127, 128, -129, 255, 256, 300, -(2**31), 2**31 - 1], np.int64)
    for target in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.uint64):
        number = helper.np_dtype_to_tensor_dtype(np.dtype(target))
        m = model([node("Cast", "x", "y", to=number)], {"x": (I64, [11])}, ["y"])
        np.testing.assert_array_equal(ptir.run(ptir.from_onnx(m), [wide])["y"], wide.astype(target))
    m = model([node("Cast", "x", "y", to=TensorProto.FLOAT8E4M3FN)], {"x": [4]}, ["y"])
    values = np.array([1000, -np.inf, np.nan, 3.3], np.float32)
    found = ptir.run(ptir.from_onnx(m), [values])["y"].astype(np.float32)
    np.testing.assert_array_equal(found, np.array([448, -448, np.nan, 3.25], np.float32))


@pytest.mark.parametrize(
    "span", [(-1, -100, -1), (5, 1, -2), (0, 100, 3), (-3, 100, 1), (4, 2, 1), (-100, 3, 2), (100, -100, -3)], ids=str
)
def test_slices_are_numpys(span: tuple[int, int, int]) -> None:
    start, end, step = span
    weights = {"s": np.array([start]), "e": np.array([end]), "a": np.array([1]), "k": np.array([step])}
    m = model([node("Slice", "x s e a k", "y")], {"x": [2, 7]}, ["y"], weights)
    last = None if step < 0 and end < -7 else end
    np.testing.assert_array_equal(ptir.run(ptir.from_onnx(m), [noise(2, 7)])["y"], noise(2, 7)[:, start:last:step])


def test_functions_of_the_model_are_expanded() -> None:
    nodes = [helper.make_node("Mul", ["a", "b"], ["t"]), helper.make_node("Softmax", ["t"], ["c"])]
    nodes[1].attribute.add(name="axis", ref_attr_name="along", type=2)
    scaled = helper.make_function("mine", "Scaled", ["a", "b"], ["c"], nodes, [helper.make_opsetid("", 21)], ["along"])
    call = helper.make_node("Scaled", ["x", "w"], ["y"], domain="mine", along=0)
    m = model([call], {"x": [3, 4]}, ["y"], {"w": noise(3, 4)})
    m.functions.append(scaled)
    m.opset_import.append(helper.make_opsetid("mine", 1))
    e = np.exp((noise(3, 4) * noise(3, 4)).astype(np.float64))
    found = ptir.run(ptir.from_onnx(m), [noise(3, 4)])["y"]
    np.testing.assert_allclose(found, e / e.sum(0), rtol=1e-5)


def test_quantized_operators() -> None:
    scale, zero = np.float32(0.05), np.array(3, np.uint8)
    weights = {"s": scale, "z": zero, "ws": np.linspace(0.01, 0.05, 5, dtype=np.float32), "wz": np.zeros(5, np.int8)}
    weights |= {
        "w": np.random.default_rng(0).integers(-127, 128, (8, 5)).astype(np.int8),
        "ys": np.float32(0.2),
        "yz": np.array(9, np.uint8),
    }
    nodes = [
        node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "d"),
        node("DequantizeLinear", "w ws wz", "wd", axis=1), node("MatMul", "d wd", "y"),
    ]  # fmt: skip
    same(model(nodes, {"x": [4, 8]}, ["y", "q"], weights), {"x": noise(4, 8)})


@pytest.mark.slow
@pytest.mark.parametrize("share", range(6))
def test_the_node_tests(share: int) -> None:
    """A sixth of them, on NumPy and on the default engine."""
    from tests.suites import onnx_nodes

    with warnings.catch_warnings(action="ignore"):
        report = onnx_nodes.run(every=6, first=share)
    assert not report.wrong and not report.errors
    assert len(report.right) > 0.85 * (len(report.right) + len(report.refused))


def test_malformed_nodes_give_diagnostics() -> None:
    """Operands and attributes taken away, doubled and changed: a diagnostic, or a program that verifies."""
    rng = random.Random(0)
    m = model(
        [
            node("Conv", "x w", "c", kernel_shape=[3, 3]), node("Reshape", "c sh", "r"), node("Softmax", "r", "s", axis=1),
            node("Gemm", "s g", "y", transB=1), node("Split", "y", "a b", num_outputs=2), node("Concat", "a b", "z", axis=0),
        ],
        {"x": [1, 2, 5, 5]}, ["z"], {"w": noise(4, 2, 3, 3), "sh": np.array([4, 9]), "g": noise(6, 9)},
    )  # fmt: skip
    values: list[Any] = [-1, 0, 7, 10**6, [1, 2], [0, -1], "x", 0.5]
    for _ in range(300):
        broken = onnx.ModelProto.FromString(m.SerializeToString())
        chosen = rng.choice(broken.graph.node)
        what = rng.randrange(5)
        if what == 0 and chosen.input:
            del chosen.input[rng.randrange(len(chosen.input))]
        elif what == 1:
            chosen.input.append(rng.choice(["x", "w", "nothing", ""]))
        elif what == 2 and chosen.attribute:
            a = rng.choice(chosen.attribute)
            a.CopyFrom(helper.make_attribute(a.name, rng.choice(values)))
        elif what == 3:
            chosen.op_type = rng.choice(
                ["Loop", "If", "LSTM", "Resize", "Attention", "Pad", "Scan", "Einsum", "Cast", "Constant"]
            )
        else:
            dims = broken.graph.input[0].type.tensor_type.shape.dim
            dims[rng.randrange(len(dims))].dim_param = "N"
        diagnostics = Diagnostics()
        program = reading.read(Source("m.onnx", "", data=broken.SerializeToString()), diagnostics, Options())
        assert program is not None or diagnostics.errors
        assert all(d.code for d in diagnostics)


def test_a_slice_from_the_end_of_a_dynamic_axis() -> None:
    """The last token of a sequence whose length is not known."""
    for start, end in ((-1, 2**63 - 1), (-3, -1)):
        m = model(
            [node("Slice", "x a b c", "y")], {"x": ["B", "T", 3]}, ["y"],
            {"a": np.array([start]), "b": np.array([end]), "c": np.array([1])},
        )  # fmt: skip
        program = same(m, {"x": noise(2, 5, 3)})
        assert str(program.main.result_types[0]) == f"tensor<f32, ?Bx{1 if start == -1 else 2}x3>"


@pytest.mark.parametrize("stated", [False, True])
def test_big_weights_are_read_from_the_file_when_they_are_wanted(tmp_path: Path, stated: bool) -> None:
    """What protobuf parses has none of their bytes; the program is the one of the whole model. Some exporters state where bytes
    are, also when they are in the model."""
    w, b = noise(200, 128), noise(128)
    m = model([node("Gemm", "x w b", "y")], {"x": [2, 200]}, ["y"], {"w": w, "b": b})
    if stated:
        m.graph.initializer[0].data_location = onnx.TensorProto.DEFAULT
    onnx.save(m, tmp_path / "m.onnx")
    data = (tmp_path / "m.onnx").read_bytes()
    light = onnx.ModelProto.FromString(wire.without_weights(data, "m.onnx"))
    assert light.ByteSize() < 2000 < w.nbytes
    assert [t.data_location for t in light.graph.initializer] == [1, 0]
    assert onnx.load(tmp_path / "m.onnx").graph.node == light.graph.node
    onnx.save(light, tmp_path / "light.onnx")
    assert onnx.load(tmp_path / "light.onnx").graph.initializer[0].raw_data == w.tobytes()
    x = noise(2, 200)
    for program in (ptir.read(tmp_path / "m.onnx"), ptir.from_onnx(str(tmp_path / "m.onnx")), ptir.from_onnx(m)):
        np.testing.assert_allclose(ptir.run(program, [x])["y"], x @ w + b, rtol=1e-4, atol=1e-4)
    os.symlink(tmp_path / "m.onnx", tmp_path / "link.onnx")
    (tmp_path / "elsewhere").mkdir()
    os.symlink(tmp_path / "m.onnx", tmp_path / "elsewhere" / "link.onnx")
    for link in (tmp_path / "link.onnx", tmp_path / "elsewhere" / "link.onnx"):
        assert run_ptir("verify", link).status == 0


def test_big_weights_of_another_size_than_their_type_are_reported(tmp_path: Path) -> None:
    m = model([node("Add", "x w", "y")], {"x": [200, 128]}, ["y"], {"w": noise(200, 128)})
    m.graph.initializer[0].raw_data = bytes(200 * 128 * 4 + 4)
    (tmp_path / "m.onnx").write_bytes(m.SerializeToString())
    ran = run_ptir("verify", tmp_path / "m.onnx")
    assert ran.status == 1
    assert "InvalidModel" in ran.err
    whole = (tmp_path / "m.onnx").read_bytes()
    for at in range(0, len(whole), len(whole) // 40):  # cut short anywhere: as it is, and protobuf says what is wrong
        assert wire.without_weights(whole[:at], "m.onnx") == whole[:at]


def test_external_data_beyond_two_gigabytes(tmp_path: Path) -> None:
    """A tensor that begins beyond 2 GiB of a sparse file."""
    w, at = noise(3, 4), (1 << 31) + 4096
    m = model([node("Add", "x w", "y")], {"x": [3, 4]}, ["y"], {"w": w})
    t = m.graph.initializer[0]
    t.ClearField("raw_data")
    t.data_location = 1
    for key, value in (("location", "w.data"), ("offset", str(at)), ("length", str(w.nbytes))):
        t.external_data.add(key=key, value=value)
    with open(tmp_path / "w.data", "wb") as file:
        file.seek(at)
        file.write(w.tobytes())
    (tmp_path / "m.onnx").write_bytes(m.SerializeToString())
    x = noise(3, 4)
    np.testing.assert_array_equal(ptir.run(ptir.read(tmp_path / "m.onnx"), [x])["y"], x + w)
    t.external_data[1].value = str(at + 4)  # beyond the end of the file
    (tmp_path / "m.onnx").write_bytes(m.SerializeToString())
    ran = run_ptir("verify", tmp_path / "m.onnx")
    assert ran.status == 1
    assert "its type has 48 bytes" in ran.err


FAR = 2**63 - 1


@pytest.mark.parametrize(
    ("start", "end", "step"),
    [(1, FAR, 1), (0, -1, 1), (2, -2, 1), (0, FAR, 2), (1, FAR, 2), (1, -1, 3), (-1, -FAR, -1), (-2, -FAR, -1), (FAR, 1, -2),
     (-1, 0, -1), (0, 5, 1), (-3, FAR, 1), (6, FAR, 1), (-FAR, -1, 1)],
)  # fmt: skip
def test_a_symbolic_extent_is_sliced_from_both_ends(start: int, end: int, step: int) -> None:
    weights = {"s": np.array([start]), "e": np.array([end]), "a": np.array([1]), "k": np.array([step])}
    m = model([node("Slice", "x s e a k", "y")], {"x": ["B", "T", 4]}, ["y"], weights)
    same(m, {"x": noise(3, 7, 4)})


def test_two_slices_of_one_symbol_have_one_extent() -> None:
    """The next element less each: `x[:, 1:] - x[:, :-1]`."""
    weights = {"one": np.array([1]), "far": np.array([FAR]), "zero": np.array([0]), "last": np.array([-1])}
    nodes = [node("Slice", "x one far one", "a"), node("Slice", "x zero last one", "b"), node("Sub", "a b", "y")]
    program = same(model(nodes, {"x": ["B", "T"]}, ["y"], weights), {"x": noise(3, 7)})
    assert len({str(r.type) for r in program.main.results}) == 1
    assert ptir.run(program, {"x": noise(3, 1)})["y"].shape == (3, 0)


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("fewer", [0, 2])
def test_as_many_as_a_symbol_are_sorted(largest: int, fewer: int) -> None:
    """`x.sort()` of torch is a TopK of the whole axis."""
    weights = {"one": np.array([1]), "less": np.array([fewer])}
    nodes = [node("Shape", "x", "s"), node("Gather", "s one", "n"), node("Sub", "n less", "k"),
             node("TopK", "x k", "y at", axis=1, largest=largest)]  # fmt: skip
    m = model(nodes, {"x": ["B", "T", 2]}, ["y", "at"], weights)
    x = np.round(noise(3, 7, 2) * 2)  # some are equal
    same(m, {"x": x})


def test_a_squeeze_without_axes_drops_no_symbol_but_1() -> None:
    """The program runs for other numbers, and never with an axis that ONNX would drop."""
    m = model([node("Squeeze", "x", "s"), node("Neg", "s", "y")], {"x": ["B", 1, 3]}, ["y"])
    program = same(m, {"x": noise(2, 1, 3)})
    for again in (program, ptir.read(ptir.write(program)), ptir.optimize(program)):
        with pytest.raises(ptir.Rejected, match="B_is_not_1"):
            ptir.run(again, [noise(1, 1, 3)])
    same(m, {"x": noise(1, 1, 3)}, bind={"B": 1})


def test_an_output_with_fewer_axes_shows_that_a_symbol_is_1() -> None:
    m = model([node("Squeeze", "x", "s"), node("Neg", "s", "y")], {"x": ["B", 1, 3]}, ["y"])
    m.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", F, ["N"]))
    program = same(m, {"x": noise(1, 1, 3)})
    assert str(program.main.result_types[0]) == "tensor<f32, 3>"
    with pytest.raises(ptir.UsageError, match="got shape"):
        ptir.run(program, [noise(2, 1, 3)])


def _while(limit: str, step: int = 1, carried: str = "n") -> Any:
    """A loop of TensorFlow's form: `while i < n: a += rows[i]; i += step`, which stacks the sums. `n` is an extent of `x`."""
    typed = [("k", I64), ("on", BOOL), ("i", I32), ("n", I32), ("a", F)]
    held = [helper.make_tensor_value_info(name, dtype, [3] if name == "a" else []) for name, dtype in typed]
    nodes = [node("Add", "i one", "i2"), node("Gather", "x i", "row"), node("Add", "a row", "a2"), node("Identity", "a2", "b"),
             node("Cast", "i2", "l", to=F), node("Cast", limit, "r", to=F), node("Less", "l r", "go"),
             node("Identity", carried, "n2"), node("Mul", "n two", "n3")]  # fmt: skip
    outs = [helper.make_tensor_value_info(name, dtype, None) for name, dtype in
            (("go", BOOL), ("i2", I32), ("n2", I32), ("a2", F), ("b", F))]  # fmt: skip
    body = helper.make_graph(nodes, "body", held, outs, [numpy_helper.from_array(np.int32(step), "one")])
    return [node("Shape", "x", "s"), node("Cast", "s", "s32", to=I32), node("Gather", "s32 zero", "rows"),
            node("Cast", "rows", "rf", to=F), node("Less", "start rf", "first"),
            node("Loop", "_ first zero rows init", "i_end n_end y stack", body=body)]  # fmt: skip


@pytest.mark.parametrize("limit", ["n", "rows"])
def test_a_loop_that_counts_to_an_extent_is_a_scan(limit: str) -> None:
    weights = {"zero": np.int32(0), "start": np.float32(0), "two": np.int32(2), "init": np.zeros(3, np.float32)}
    m = model(_while(limit), {"x": ["T", 3]}, ["y", "stack"], weights)
    program = same(m, {"x": noise(5, 3)})
    assert "scan" in {op.defn.short for op in program.main.body}
    assert ptir.run(program, {"x": noise(0, 3)})["stack"].shape == (0, 3)


@pytest.mark.parametrize("changed", [{"step": 2}, {"carried": "n3"}])
def test_a_loop_whose_counter_or_limit_changes_otherwise_is_refused(changed: dict[str, Any]) -> None:
    weights = {"zero": np.int32(0), "start": np.float32(0), "two": np.int32(2), "init": np.zeros(3, np.float32)}
    with pytest.raises(ptir.Rejected, match="of Loop"):
        ptir.from_onnx(model(_while("n", **changed), {"x": ["T", 3]}, ["y", "stack"], weights))


def test_a_loop_that_begins_by_another_comparison_is_refused() -> None:
    weights = {"zero": np.int32(0), "start": np.float32(1), "two": np.int32(2), "init": np.zeros(3, np.float32)}
    with pytest.raises(ptir.Rejected, match="of Loop"):
        ptir.from_onnx(model(_while("n"), {"x": ["T", 3]}, ["y", "stack"], weights))


def test_padding_other_axes_than_a_dynamic_one() -> None:
    for mode in ("reflect", "edge", "wrap"):
        m = model([node("Pad", "x p", "y", mode=mode)], {"x": ["B", 5]}, ["y"], {"p": np.array([0, 2, 0, 1])})
        same(m, {"x": noise(2, 5)})


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("op", ["Conv", "MaxPool", "AveragePool"])
def test_same_padding_along_dynamic_axes(op: str, mode: str) -> None:
    """The padding depends on the extent, which the run knows: one window per stride, for every rest of the stride."""
    for kernel, stride, dilation in product((1, 2, 3, 5), (1, 2, 3), (1, 2) if op == "Conv" else (1,)):
        attrs = {"kernel_shape": [kernel, 1], "strides": [stride, 1], "dilations": [dilation, 1], "auto_pad": mode}
        weights = {"w": noise(2, 3, kernel, 1)} if op == "Conv" else {}
        m = model([node(op, " ".join(["x", *weights]), "y", **attrs)], {"x": ["N", 3, "H", "W"]}, ["y"], weights, 19)
        program = ptir.from_onnx(m)
        for h in range(1, 9):
            x, count, span = noise(2, 3, h, 4), -(-h // stride), (kernel - 1) * dilation + 1
            total = max((count - 1) * stride + span - h, 0)
            low = total // 2 if mode == "SAME_UPPER" else -(-total // 2)
            at = np.arange(count)[:, None] * stride - low + np.arange(kernel) * dilation
            seen = np.where(((at >= 0) & (at < h))[:, :, None], x[:, :, np.clip(at, 0, h - 1)], np.nan)  # [2, 3, count, taps, 4]
            wanted = (
                np.einsum("nctkw,ock->notw", np.nan_to_num(seen), weights["w"][..., 0])
                if op == "Conv"
                else (np.nanmax if op == "MaxPool" else np.nanmean)(seen, axis=3)
            )
            for engine in ENGINES:
                (found,) = ptir.run(program, {"x": x}, engine=engine).values()
                np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


# ---- what breaks a rule of ONNX


def _broken(**changed: Any) -> Any:
    m = model([node("Add", "x c", "y")], {"x": [2, 3]}, ["y"], {"c": np.ones((2, 3), np.float32)}, **changed)
    return m


def _refused(m: Any) -> str:
    with pytest.raises(ptir.Rejected) as caught:
        ptir.from_onnx(m)
    return str(caught.value.diagnostics[0].message)


def test_names_are_defined_once() -> None:
    m = _broken()
    m.graph.node.append(node("Neg", "x", "y"))
    assert _refused(m) == "two values are called `y`"
    m = _broken()
    m.graph.initializer.append(m.graph.initializer[0])
    assert _refused(m) == "two initializers are called `c`"
    m = _broken()
    m.graph.output.append(m.graph.output[0])
    assert _refused(m) == "two outputs are called `y`"


def test_an_operator_set_or_attribute_that_is_not_there() -> None:
    m = _broken()
    m.opset_import[0].version = 99
    assert _refused(m).startswith("the model is of operator set 99, and the package `onnx`")
    m = _broken()
    m.graph.node[0].attribute.append(helper.make_attribute("foo", 1))
    assert _refused(m) == "Add of operator set 21 has no attribute `foo` (node `n_y`)"


@pytest.mark.parametrize("extent", [6, "N"])
def test_a_slice_has_no_step_of_zero(extent: Any) -> None:
    operands = {"s": np.array([0]), "e": np.array([5]), "a": np.array([0]), "k": np.array([0])}
    m = model([node("Slice", "x s e a k", "y")], {"x": [extent]}, ["y"], operands)
    assert _refused(m) == "Slice has a step of 0 (node `n_y`)"


def test_inputs_whose_names_are_spelled_alike() -> None:
    pytest.importorskip("onnxruntime")
    from ptir_tools.bridges.onnx import runtime

    m = model([helper.make_node("Sub", ["a/b", "a_b"], ["y"])], {"a/b": [2], "a_b": [2]}, ["y"])
    p = ptir.from_onnx(m)
    assert [v.name for v in p.main.params] == ["a_b", "a_b_1"]
    given = {"a/b": np.array([5, 6], np.float32), "a_b": np.array([1, 3], np.float32)}
    assert ptir.run(p, given)["y"].tolist() == [4, 3]
    again = ptir.to_onnx(p)
    assert [v.name for v in again.graph.input] == ["a/b", "a_b"]
    assert runtime.run(again, given)["y"].tolist() == [4, 3]


# ---- extents that are symbols


def at_sizes(m: Any, *feeds: dict[str, Any]) -> None:
    """One program of a model gives what ONNX's evaluator gives, at every size; and so does it as ONNX again."""
    runtime = pytest.importorskip("ptir_tools.bridges.onnx.runtime")
    program = ptir.from_onnx(m)
    again = ptir.to_onnx(program)
    for given in feeds:
        for wanted, found in zip(evaluated(m, given), ptir.run(program, given, engine="reference").values(), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-6)
        pytest.importorskip("onnxruntime")
        for wanted, found in zip(evaluated(m, given), runtime.run(again, given).values(), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_a_product_of_extents_is_divided_again() -> None:
    """A mask of every head: [B, 1, 1, L] as [B * 2, 1, L], and back to [B, 2, -1, L], whose third extent is 1."""
    nodes = [
        node("Shape", "x", "b", end=1), node("Shape", "x", "l", start=1), node("Mul", "b two", "bh"),
        node("Unsqueeze", "x axes", "m"), node("Concat", "b two one l", "s0", axis=0), node("Expand", "m s0", "e"),
        node("Concat", "bh one l", "s1", axis=0), node("Reshape", "e s1", "r"), node("Concat", "b two minus l", "s2", axis=0),
        node("Reshape", "r s2", "back"), node("Add", "back y", "z"),
    ]  # fmt: skip
    weights = {"two": np.array([2]), "one": np.array([1]), "minus": np.array([-1]), "axes": np.array([1, 2])}
    m = model(nodes, {"x": ["B", "L"], "y": ["B", 2, "L", "L"]}, ["z"], weights)
    at_sizes(m, *({"x": noise(b, n), "y": noise(b, 2, n, n)} for b, n in ((2, 5), (3, 4))))


@pytest.mark.parametrize(("less", "by", "sign"), [(0, -2, -1), (5, 2, 1)])
def test_an_extent_is_not_divided_where_the_quotient_may_be_negative(less: int, by: int, sign: int) -> None:
    """ONNX rounds toward zero, extents down."""
    nodes = [
        node("Shape", "x", "n"), node("Sub", "n less", "k"), node("Div", "k by", "half"), node("Mul", "half sign", "m"),
        node("ConstantOfShape", "m", "y"),
    ]  # fmt: skip
    m = model(nodes, {"x": ["N"]}, ["y"], {"less": np.array([less]), "by": np.array([by]), "sign": np.array([sign])})
    assert "`m`, decides the type of the result" in _refused(m)


def test_positions_as_floats() -> None:
    nodes = [
        node("Shape", "x", "n", start=0, end=1), node("Squeeze", "n", "s"), node("Cast", "s", "f", to=1),
        node("Range", "zero f one", "r"), node("Mul", "r x", "y"),
    ]  # fmt: skip
    m = model(nodes, {"x": ["N"]}, ["y"], {"zero": np.float32(0), "one": np.float32(1)})
    at_sizes(m, {"x": noise(5)}, {"x": noise(3)})


def test_slices_by_vectors_where_the_rest_is_a_symbol() -> None:
    m = model([node("GatherND", "x i", "y")], {"x": [4, 4, "N"]}, ["y"], {"i": np.array([[0, 1], [-1, 2], [3, -4]])})
    at_sizes(m, {"x": noise(4, 4, 5)}, {"x": noise(4, 4, 2)})
    m = model([node("GatherND", "x i", "y")], {"x": ["N", 3], "i": (I64, ["M", 1])}, ["y"])
    at_sizes(m, {"x": noise(4, 3), "i": np.array([[1], [-1]])}, {"x": noise(2, 3), "i": np.array([[0], [1], [-2]])})


# ---- sequences


def flat(values: list[Any]) -> list[Any]:
    return [y for x in values for y in (x if isinstance(x, list) else [x])]


def held_to_onnx(m: Any, feeds: dict[str, Any], **options: Any) -> Any:
    """The program of a model with outputs that are sequences, after each engine gave what ONNX's evaluator gives."""
    wanted, program = flat(evaluated(m, feeds)), ptir.from_onnx(m, **options)
    for engine in ENGINES:
        found = list(ptir.run(program, feeds, engine=engine).values())
        for x, y in zip(found, wanted, strict=True):
            assert x.dtype == y.dtype and x.shape == y.shape
            np.testing.assert_array_equal(x, y)
    return program


def test_sequences_of_known_lengths_are_their_elements() -> None:
    nodes = [
        node("SplitToSequence", "x", "ones", axis=0), node("SplitToSequence", "x", "rows", axis=0, keepdims=0),
        node("SplitToSequence", "x two", "pairs", axis=-1), node("SplitToSequence", "x sizes", "sized", axis=1),
        node("SequenceLength", "pairs", "n"), node("Sub", "n one", "last"), node("SequenceAt", "pairs last", "tail"),
        node("SequenceInsert", "sized tail", "more"), node("SequenceInsert", "more tail minus", "most"),
        node("SequenceErase", "most zero", "less"), node("SequenceErase", "less", "least"),
        node("ConcatFromSequence", "least", "joined", axis=1), node("ConcatFromSequence", "rows", "stacked", axis=-1, new_axis=1),
        node("SequenceConstruct", "x tail", "two_of"), node("SequenceAt", "two_of minus", "y"), node("Identity", "ones", "same"),
        node("SequenceEmpty", "", "none"), node("SequenceInsert", "none x", "x_only"),
        node("SequenceLength", "none", "zero_long"),
    ]  # fmt: skip
    weights = {
        "two": np.array(2), "sizes": np.array([1, 0, 4]), "one": np.array(1), "minus": np.array(-1), "zero": np.array(0),
    }  # fmt: skip
    outputs = ["ones", "n", "tail", "least", "joined", "stacked", "y", "same", "x_only", "zero_long"]
    program = held_to_onnx(model(nodes, {"x": [3, 5]}, outputs, weights), {"x": noise(3, 5)})
    assert list(ptir.run(program, {"x": noise(3, 5)}))[:4] == ["ones.0", "ones.1", "ones.2", "n"]


@pytest.mark.parametrize("steps", [0, 3])
def test_loops_carry_and_read_sequences(steps: int) -> None:
    """What a loop of known steps makes is written out; what one of many steps reads comes in."""
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [node("Mul", "x x", "xx"), node("SequenceInsert", "s xx", "s_out"), node("Identity", "c", "c_out")],
        "body",
        [value("i", I64, []), value("c", 9, []), helper.make_tensor_sequence_value_info("s", F, None)],
        [value("c_out", 9, []), helper.make_tensor_sequence_value_info("s_out", F, None)],
    )
    reads = helper.make_graph(
        [node("SequenceAt", "list at", "e"), node("Add", "a e", "a_out"), node("Identity", "c", "c_out")],
        "reads",
        [value("i", I64, []), value("c", 9, []), value("a", F, [2])],
        [value("c_out", 9, []), value("a_out", F, [2])],
    )
    nodes = [
        node("SequenceConstruct", "x y", "list"), node("Loop", "steps yes list", "grown", body=body),
        node("Loop", "many yes x", "sum", body=reads),
    ]  # fmt: skip
    weights = {"steps": np.array(steps), "many": np.array(200), "yes": np.array(True), "at": np.array(-1)}
    m = model(nodes, {"x": [2], "y": [2]}, ["grown", "sum"], weights)
    held_to_onnx(m, {"x": np.float32([1, 2]), "y": np.float32([3, -4])})


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node("SequenceConstruct", "x x", "s"), node("SequenceAt", "s k", "y")], "is not a constant"),
        ([node("SequenceConstruct", "x x", "s"), node("SequenceAt", "s two", "y")], "position 2 is not one of a sequence of 2"),
        ([node("SequenceConstruct", "x x", "s"), node("Relu", "s", "y")], "`s` is a sequence, and a tensor is wanted"),
        ([node("SequenceAt", "x two", "y")], "operand 0 of SequenceAt is not a sequence"),
        ([node("SequenceEmpty", "", "s"), node("ConcatFromSequence", "s", "y", axis=0)], "an empty sequence has nothing to join"),
        ([node("SequenceEmpty", "", "s"), node("SequenceErase", "s", "y")], "an empty sequence has nothing to erase"),
        ([node("SplitToSequence", "x two", "y", axis=1)], "the operator asks for a number where the extent is the symbol ?N"),
        ([node("SplitToSequence", "x sizes", "y")], "the parts [1, 1] are not all of 3"),
        ([node("SplitToSequence", "x zero", "y")], "SplitToSequence in parts of 0"),
    ],
)
def test_sequences_that_cannot_be_known_are_refused(nodes: list[Any], message: str) -> None:
    weights = {"two": np.array(2), "zero": np.array(0), "sizes": np.array([1, 1])}
    with pytest.raises(ptir.Rejected) as found:
        ptir.from_onnx(model(nodes, {"x": [3, "N"], "k": (I64, [])}, ["y"], weights))
    assert message in str(found.value)


# What decides a shape and is known


def test_what_depends_on_constants_only_is_known() -> None:
    nodes = [
        node("NonZero", "k", "places"), node("Squeeze", "places zero", "at"), node("Gather", "x at", "a", axis=1),
        node("Unique", "k", "u"), node("CumSum", "k origin", "sums"), node("GatherND", "sums spot", "n"),
        node("Cast", "n", "n1", to=I64), node("Unsqueeze", "n1 zero", "count"), node("ConstantOfShape", "count", "z"),
    ]  # fmt: skip
    weights = {"k": np.array([0, 2, 0, 1]), "zero": np.array([0]), "origin": np.array(0), "spot": np.array([3])}
    program = same(model(nodes, {"x": [2, 4]}, ["a", "u", "z"], weights), {"x": noise(2, 4)})
    assert [str(r.type) for r in program.main.results] == ["tensor<f32, 2x2>", "tensor<si64, 3>", "tensor<f32, 3>"]


def test_a_subgraph_of_sequence_map_sees_what_is_outside() -> None:
    inner = helper.make_graph(
        [node("Mul", "e k", "m"), node("Add", "m x", "o")], "body", [helper.make_tensor_value_info("e", F, None)],
        [helper.make_tensor_value_info("o", F, None)],
    )  # fmt: skip
    nodes = [
        node("SequenceConstruct", "x y", "s"), node("SequenceMap", "s", "t", body=inner),
        node("ConcatFromSequence", "t", "z", axis=0),
    ]  # fmt: skip
    m, x, y = model(nodes, {"x": [2, 3], "y": [2, 3]}, ["z"], {"k": np.float32(3)}), noise(2, 3), noise(3, 2).T.copy()
    for engine in ENGINES:
        found = ptir.run(ptir.from_onnx(m), [x, y], engine=engine)["z"]
        np.testing.assert_allclose(found, np.concatenate([3 * x + x, 3 * y + x]), rtol=1e-6)


def test_a_loop_that_a_known_condition_ends_collects_values() -> None:
    body = helper.make_graph(
        [
            node("Add", "k one", "k2"), node("Less", "k2 three", "on"), node("Mul", "x x", "v"),
            node("SequenceInsert", "s v", "s2"),
        ],
        "body",
        [helper.make_tensor_value_info("i", I64, []), helper.make_tensor_value_info("c", 9, []),
         helper.make_value_info("s", helper.make_sequence_type_proto(helper.make_tensor_type_proto(F, None))),
         helper.make_tensor_value_info("k", I64, [])],
        [helper.make_tensor_value_info("on", 9, []),
         helper.make_value_info("s2", helper.make_sequence_type_proto(helper.make_tensor_type_proto(F, None))),
         helper.make_tensor_value_info("k2", I64, [])],
    )  # fmt: skip
    nodes = [
        node("SequenceEmpty", "", "empty"), node("Loop", "_ yes empty zero", "all last", body=body),
        node("ConcatFromSequence", "all", "z", axis=0),
    ]  # fmt: skip
    weights = {"yes": np.array(True), "zero": np.array(0), "one": np.array(1), "three": np.array(3)}
    x = noise(2, 3)
    found = ptir.run(ptir.from_onnx(model(nodes, {"x": [2, 3]}, ["z", "last"], weights)), [x])
    np.testing.assert_allclose(found["z"], np.concatenate([x * x] * 3), rtol=1e-6)
    assert found["last"] == 3


def test_an_optional_with_a_tensor_is_that_tensor() -> None:
    nodes = [node("Optional", "x", "o"), node("OptionalGetElement", "o", "y"), node("OptionalHasElement", "o", "there")]
    found = ptir.run(ptir.from_onnx(model(nodes, {"x": [2]}, ["y", "there"])), [np.array([1, 2], np.float32)])
    assert found["y"].tolist() == [1, 2] and found["there"]


def test_the_nearest_element_of_a_third_by_six_tenths_is_the_fifth() -> None:
    nodes = [
        node("Resize", "x _ s", "y", mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
        node("Resize", "x _ s", "z", mode="linear", coordinate_transformation_mode="align_corners"),
    ]
    m = model(nodes, {"x": [1, 1, 11]}, ["y", "z"], {"s": np.array([1, 1, 0.6], np.float32)})
    x = np.arange(11, dtype=np.float32)[None, None] ** 2
    m.producer_name = "pytorch"  # whose scales mean extents: 6 of 11 here
    found = ptir.run(ptir.from_onnx(m), [x])
    assert found["y"].tolist() == [[[0, 1, 9, 25, 36, 64]]]  # as torch and ONNX Runtime, which divide in f32
    np.testing.assert_allclose(found["z"][0, 0, [0, 1, 5]], [0, 4, 100], atol=1e-4)


@pytest.mark.parametrize("kind", ["INT2", "UINT2", "FLOAT4E2M1", "FLOAT8E4M3FNUZ", "FLOAT8E5M2FNUZ"])
def test_constants_of_dtypes_outside_of_ptir_are_dequantized(kind: str) -> None:
    number = getattr(TensorProto, kind)
    values = np.array([[1, 0], [0, 1], [1, 1]] if "INT" in kind else [[1.5, -2], [3, -1], [0.5, 4]])
    stored = values.astype(helper.tensor_dtype_to_np_dtype(number))
    nodes = [node("DequantizeLinear", "q s", "w", axis=1), node("MatMul", "x w", "y"), node("Cast", "q", "c", to=F)]
    m = model(nodes, {"x": [2, 3]}, ["y", "c"], {"q": stored, "s": np.array([0.5, 0.25], np.float32)}, 25)
    x = noise(2, 3)
    found = ptir.run(ptir.from_onnx(m), [x])
    np.testing.assert_allclose(found["y"], x @ (values * [0.5, 0.25]), rtol=1e-5)
    assert found["c"].tolist() == values.tolist()
    with pytest.raises(ptir.Rejected, match=r"PTIR has no \w+; it is read where"):
        ptir.from_onnx(model([node("CastLike", "x q", "y")], {"x": [2, 3]}, ["y"], {"q": stored}, 25))


@pytest.mark.parametrize("corners", [0, 1])
def test_cubic_neighbors_beyond_the_border_are_those_of_the_border(corners: int) -> None:
    """As ONNX Runtime and PyTorch do: the same as without a border in an image whose edges are repeated."""
    h, w, around = 4, 3, 12
    x, grid = noise(1, 2, h, w), np.array([[-0.9, 0.25], [0.75, -0.5], [1.25, 1.125], [-2.5, 0.0], [-0.5, 3.0]], np.float32)
    sizes = np.array([w, h])
    place = (grid + 1) / 2 * (sizes - 1) if corners else ((grid + 1) * sizes - 1) / 2
    moved = (2 * (place + around) / (sizes + 2 * around - 1) - 1).astype(np.float32)
    wide = np.pad(x, [(0, 0), (0, 0), (around, around), (around, around)], mode="edge")
    made = node("GridSample", "x g", "y", mode="cubic", padding_mode="border", align_corners=corners)
    program = ptir.from_onnx(model([made], {"x": list(x.shape), "g": [1, 1, 5, 2]}, ["y"]))
    (found,) = ptir.run(program, {"x": x, "g": grid[None, None]}).values()
    plain = node("GridSample", "x g", "y", mode="cubic", padding_mode="zeros", align_corners=1)
    (wanted,) = evaluated(model([plain], {"x": list(wide.shape), "g": [1, 1, 5, 2]}, ["y"]), {"x": wide, "g": moved[None, None]})
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


INDEXED = {
    "GatherND": ({"x": [2, 3, 4], "k": (I64, [1, 3])}, [[1, -3, 3]], [[0, 3, 0]]),
    "GatherND of batches": ({"x": [2, 3, 4], "k": (I64, [2, 1])}, [[-1], [2]], [[0], [3]]),
    "ScatterND": ({"x": [2, 3, 4], "k": (I64, [1, 2]), "u": [1, 4]}, [[1, -3]], [[0, -4]]),
    "GatherElements": ({"x": [2, 3, 4], "k": (I64, [1, 1, 2])}, [[[3, -4]]], [[[0, 4]]]),
    "ScatterElements": ({"x": [2, 3, 4], "k": (I64, [1, 1, 2]), "u": [1, 1, 2]}, [[[3, -4]]], [[[0, -5]]]),
}


@pytest.mark.parametrize("name", INDEXED)
@pytest.mark.parametrize("known", [False, True])
def test_an_index_is_inside_its_own_axis(name: str, known: bool) -> None:
    inputs, good, bad = INDEXED[name]
    attrs = {"axis": 2} if "Elements" in name else {"batch_dims": 1} if "batches" in name else {}
    for values in (good, bad):
        k = np.array(values)
        given = {"k": k} if known else {}
        m = model(
            [node(name.split()[0], " ".join(inputs), "y", **attrs)],
            {n: t for n, t in inputs.items() if n not in given},
            ["y"],
            given,
        )
        feeds = {n: noise(*t) for n, t in inputs.items() if n != "k"} | ({} if known else {"k": k})
        if values is good and name == "GatherElements":  # ONNX's evaluator wants whole axes
            (found,) = ptir.run(ptir.from_onnx(m), feeds).values()
            assert found.tolist() == feeds["x"][:1, :1, [3, 0]].tolist()
            continue
        if values is good:
            same(m, feeds)
            continue
        for engine in ENGINES:
            with pytest.raises(ptir.Rejected, match="outside"):
                ptir.run(ptir.from_onnx(m), feeds, engine=engine)


@pytest.mark.parametrize("mode", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_the_nearest_element_by_sizes_is_that_of_exact_fractions(mode: str) -> None:
    rounding = {
        "round_prefer_floor": lambda p: -((1 - 2 * p) // 2), "round_prefer_ceil": lambda p: (2 * p + 1) // 2,
        "floor": lambda p: p // 1, "ceil": lambda p: -(-p // 1),
    }  # fmt: skip
    for n, count in ((20, 6), (7, 30), (12, 5), (35, 14), (3, 10)):
        m = model(
            [node("Resize", "x _ _ s", "y", mode="nearest", nearest_mode=mode)], {"x": [n]}, ["y"], {"s": np.array([count])}
        )
        places = [Fraction(2 * k + 1, 2) * Fraction(n, count) - Fraction(1, 2) for k in range(count)]
        wanted = [min(max(int(rounding[mode](p)), 0), n - 1) for p in places]
        (found,) = ptir.run(ptir.from_onnx(m), {"x": np.arange(n, dtype=np.float32)}).values()
        assert found.tolist() == wanted, (n, count)


def test_a_constant_for_an_input_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(model([node("Neg", "x", "y")], {"x": [2]}, ["y"]).SerializeToString())
    ran = run_ptir("run", str(tmp_path / "m.onnx"), "--input", "x=1", "--set", "nonsense=5")
    assert ran.status == 2 and "no input `nonsense` to make a constant" in ran.err


# ---- numbers for extents, and names, where a model comes in


def saved(folder: Path, m: Any) -> str:
    path = folder / "m.onnx"
    path.write_bytes(m.SerializeToString())
    return str(path)


def resized() -> Any:
    """An image of any size, twice as large; its mean per channel and size."""
    nodes = [node("Resize", "x _ s", "r", mode="cubic"), node("Pad", "r p", "y", mode="reflect")]
    return model(
        nodes, {"x": ["N", 3, "H", "W"]}, ["y"], {"s": np.array([1, 1, 2, 2], np.float32), "p": np.array([0, 0, 1, 1] * 2)}
    )


@pytest.mark.parametrize(
    "flags", [("--bind", "H=4", "--bind", "W=5"), ("--shape", "x=*,3,4,5"), ("--shape", "x=1,*,4,*", "--bind", "W=5")]
)
def test_numbers_for_extents_act_before_a_model_is_read(flags: tuple[str, ...], tmp_path: Path) -> None:
    path = saved(tmp_path, resized())
    assert "symbolic extent" in run_ptir("verify", path).err or "the symbol" in run_ptir("verify", path).err
    for command in (
        ("verify",),
        ("info",),
        ("opt",),
        ("translate", "--to", "onnx", "-o", str(tmp_path / "again.onnx")),
        ("stats",),
    ):
        ran = run_ptir(command[0], path, *command[1:], *flags)
        assert ran.status == 0 and not ran.err, ran.err
    assert "?N" in run_ptir("opt", path, "--bind", "H=4", "--bind", "W=5").text
    same(resized(), {"x": noise(1, 3, 4, 5)}, shapes={"x": (None, None, 4, 5)})
    same(resized(), {"x": noise(1, 3, 4, 5)}, bind={"H": 4, "W": 5})


def test_shapes_that_an_input_cannot_have(tmp_path: Path) -> None:
    path = saved(tmp_path, resized())
    for shape, message in (
        ("x=1,4,4,5", "has 4 where its extent is 3"), ("x=1,3,4", "another rank"), ("z=1,3", "no input `z` whose shape is given"),
        ("x=1,a", "is not INPUT=1,3,*"),
    ):  # fmt: skip
        ran = run_ptir("verify", path, "--shape", shape)
        assert ran.status == 2 and message in ran.err
    ran = run_ptir("verify", path, "--shape", "x=1,3,4,5", "--bind", "Q=3")
    assert ran.status == 0 and "the program has no symbol `Q`" in ran.err
    ran = run_ptir("verify", path, "--bind", "H=3", "--shape", "x=1,3,4,5")
    assert ran.status == 2 and "its extent is H = 3" in ran.err


def test_shapes_of_programs_of_other_formats() -> None:
    head = "func @f(%x: tensor<f32, ?Nx4>, %y: tensor<f32, ?N>) -> tensor<f32, ?Nx4>"
    text = head + " {\n  %z = neg(%x) -> tensor<f32, ?Nx4>\n  return %z\n}\n"
    for flags in (("--shape", "x=2,*"), ("--shape", "y=2"), ("--bind", "N=2")):
        assert "-> tensor<f32, 2x4> {" in run_ptir("opt", *flags, stdin=text.encode()).text
    assert [str(p.type) for p in ptir.read(text, shapes={"x": (2, None)}).main.params] == ["tensor<f32, 2x4>", "tensor<f32, 2>"]
    ran = run_ptir("opt", "--shape", "x=2,5", stdin=text.encode())
    assert ran.status == 2 and "cannot have the shape 2,5" in ran.err
    ran = run_ptir("opt", "--shape", "x=2,4", "--shape", "y=3", stdin=text.encode())
    assert ran.status == 2 and "cannot have the shape 3" in ran.err


@pytest.mark.parametrize("unknown", [-1, 0])
def test_extents_that_exporters_do_not_know_are_symbols(unknown: int) -> None:
    m = model([node("Neg", "x", "y")], {"x": [unknown, 4]}, ["y"])
    assert str(ptir.from_onnx(m).main.params[0].type) == 'tensor<f32, ?"x_0"x4>'
    same(m, {"x": noise(3, 4)})
    assert str(ptir.from_onnx(m, bind={"x_0": 3}).main.params[0].type) == "tensor<f32, 3x4>"


def test_an_input_without_a_rank_gets_its_shape() -> None:
    m = model([node("Neg", "x", "y")], {"x": [1]}, ["y"])
    m.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(ptir.Rejected, match="has no rank"):
        ptir.from_onnx(m)
    assert str(ptir.from_onnx(m, shapes={"x": (2, 3)}).main.params[0].type) == "tensor<f32, 2x3>"


def test_an_initializer_that_is_an_input_is_its_default(tmp_path: Path) -> None:
    m = model([node("Add", "x w", "y")], {"x": [2], "w": [2]}, ["y"], {"w": np.array([10, 20], np.float32)})
    path = saved(tmp_path, m)
    assert "[11. 21.]" in run_ptir("run", path, "--input", "x=1").text
    assert "[6. 7.]" in run_ptir("run", path, "--input", "x=1", "--input", "w=[5,6]").text
    assert "[4. 5.]" in run_ptir("run", path, "--input", "x=1", "--set", "w=[3,4]").text
    np.savez(tmp_path / "in.npz", x=np.zeros(2, np.float32), w=np.array([7, 8], np.float32))
    assert "[7. 8.]" in run_ptir("run", path, "--inputs", str(tmp_path / "in.npz")).text
    assert [p.name for p in ptir.from_onnx(m, given=["w"]).main.params] == ["x", "w"]


def test_inputs_and_outputs_have_the_names_of_the_model(tmp_path: Path) -> None:
    m = model([helper.make_node("Sub", ["/in put:0", "b:0"], ["out/“x”.1"])], {"/in put:0": [2], "b:0": [2]}, ["out/“x”.1"])
    path, found = saved(tmp_path, m), str(tmp_path / "out.npz")
    np.savez(tmp_path / "in.npz", **{"/in put:0": np.array([5, 6], np.float32), "b:0": np.array([1, 3], np.float32)})
    assert run_ptir("run", path, "--inputs", str(tmp_path / "in.npz"), "-o", found).status == 0
    assert {k: v.tolist() for k, v in np.load(found).items()} == {"out/“x”.1": [4, 3]}
    assert "[4. 4.]" in run_ptir("run", path, "--input", "/in put:0=5", "--input", "%b_0=1").text
    assert "/in put:0" in run_ptir("info", path).text
    saved_inputs = str(tmp_path / "again.npz")
    assert run_ptir("run", path, "--random", "0", "--save-inputs", saved_inputs).status == 0
    assert list(np.load(saved_inputs)) == ["/in put:0", "b:0"]


def test_extents_in_another_dtype_decide_a_shape() -> None:
    """As tf2onnx writes shapes: in si32."""
    nodes = [
        node("Shape", "x", "s"), node("Cast", "s", "i", to=TensorProto.INT32), node("Slice", "i zero one zero", "b"),
        node("Mul", "b two", "d"), node("Concat", "d k", "t", axis=0), node("Cast", "t", "t64", to=I64),
        node("Reshape", "x t64", "y"),
    ]  # fmt: skip
    weights = {
        "zero": np.array([0]), "one": np.array([1]), "two": np.array([2], np.int32), "k": np.array([10], np.int32),
    }  # fmt: skip
    same(model(nodes, {"x": ["N", 4, 5]}, ["y"], weights), {"x": noise(3, 4, 5)})
    nodes = [
        node("Shape", "x", "s", end=1), node("Cast", "s", "f", to=F), node("Div", "f h", "q"), node("Cast", "q", "t", to=I64),
        node("ConstantOfShape", "t", "y"),
    ]  # fmt: skip
    with pytest.raises(ptir.Rejected, match="is not a constant"):  # a quotient of floats is not that of integers
        ptir.from_onnx(model(nodes, {"x": ["N"]}, ["y"], {"h": np.array([2], np.float32)}))


@pytest.mark.parametrize("width", [1, 3])
def test_a_slice_from_a_computed_start_is_a_dynamic_slice(width: int) -> None:
    nodes = [
        node("Reshape", "p minus", "a"),
        node("Add", "p w", "q"),
        node("Reshape", "q minus", "b"),
        node("Slice", "x a b axes", "y"),
    ]
    weights = {"minus": np.array([-1]), "w": np.array(width), "axes": np.array([1])}
    m = model(nodes, {"x": [2, 6], "p": (I64, [])}, ["y"], weights)
    program = ptir.from_onnx(m)
    assert "dynamic_slice" in {op.defn.short for op in program.main.body}
    for start in range(-8, 8):
        feeds = {"x": noise(2, 6), "p": np.array(start)}
        wanted = feeds["x"][:, start : start + width]
        for engine in ENGINES:
            if wanted.shape == (2, width):
                assert ptir.run(program, feeds, engine=engine)["y"].tolist() == wanted.tolist()
            else:  # fewer elements than the type says
                with pytest.raises(ptir.Rejected, match="outside"):
                    ptir.run(program, feeds, engine=engine)


def test_a_dynamic_slice_is_read_back_as_written() -> None:
    lines = (
        "func @f(%x: tensor<f32, 10x4>, %i: tensor<si32, 2>) -> tensor<f32, 4x2> {",
        "  %y = dynamic_slice(%x, %i) sizes[4, 2] -> tensor<f32, 4x2>", "  return %y", "}", "",
    )  # fmt: skip
    before = ptir.read("\n".join(lines))
    after = ptir.from_onnx(ptir.to_onnx(before))
    assert "take" not in {op.defn.short for op in after.main.body}
    for start in ([0, 0], [5, 1], [9, -3], [-20, 20]):
        feeds = {"x": noise(10, 4), "i": np.array(start, np.int32)}
        for x, y in zip(ptir.run(before, feeds).values(), ptir.run(after, feeds).values(), strict=True):
            assert x.tolist() == y.tolist()


@pytest.mark.parametrize(
    "fault", [AttributeError, AssertionError, IndexError, KeyError, TypeError, ValueError, ZeroDivisionError]
)
def test_a_fault_of_a_handler_is_not_one_of_the_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fault: type[Exception]
) -> None:
    from ptir_tools.bridges.onnx import ops
    from ptir_tools.bridges.onnx.table import HANDLERS

    assert ops.__name__  # which registers the handlers

    def broken(node: Any) -> Any:
        raise fault("planted")

    monkeypatch.setitem(HANDLERS, ("", "Neg"), broken)
    sound = model([node("Neg", "x", "y")], {"x": [2]}, ["y"])
    wrong = model([node("Neg", "x", "y")], {"x": (TensorProto.BOOL, [2])}, ["y"])
    with pytest.raises(fault, match="planted"):
        ptir.from_onnx(sound)
    if issubclass(fault, (LookupError, ValueError)):  # ONNX itself finds the other model wrong
        with pytest.raises(ptir.Rejected, match=r"TENSOR|type"):
            ptir.from_onnx(wrong)
    else:
        with pytest.raises(fault, match="planted"):
            ptir.from_onnx(wrong)
    onnx.save(sound, tmp_path / "m.onnx")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ran = run_ptir("verify", tmp_path / "m.onnx")
    assert ran.status == 70 and ran.err.startswith(f"error: internal error: {fault.__name__}: ")
    (kept,) = set(tmp_path.iterdir()) - {tmp_path / "m.onnx"}
    assert str(kept) in ran.err and "planted" in kept.read_text()


def test_an_operator_that_is_newer_than_the_operator_set_has_its_newest_attributes() -> None:
    """As ONNX Runtime writes it: LayerNormalization came with set 17, and its axis is the last one by default."""
    x, gamma = noise(2, 3), noise(3)
    old = model([node("LayerNormalization", "x g", "y")], {"x": [2, 3], "g": [3]}, ["y"], opset=13)
    centered = x - x.mean(1, keepdims=True)
    (y,) = ptir.run(ptir.from_onnx(old), [x, gamma]).values()
    np.testing.assert_allclose(y, centered / np.sqrt((centered**2).mean(1, keepdims=True) + 1e-5) * gamma, rtol=1e-5)


def test_vectors_of_indices_of_operator_set_11() -> None:
    """GatherND had no batch axes then."""
    m = model([node("GatherND", "x i", "y")], {"x": [2, 3], "i": (I64, [4, 2])}, ["y"], opset=11)
    x, at = noise(2, 3), np.array([[0, 1], [1, 2], [1, 0], [0, 0]])
    (y,) = ptir.run(ptir.from_onnx(m), [x, at]).values()
    assert y.tolist() == x[at[:, 0], at[:, 1]].tolist()


def test_a_fault_of_a_fold_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    from ptir_tools.bridges.onnx import folding

    def broken(node: Any, *operands: Any) -> Any:
        raise error

    m = model([node("Neg", "c", "n"), node("Add", "x n", "y")], {"x": [2]}, ["y"], {"c": np.array([1, 2], np.float32)})
    monkeypatch.setitem(folding.FOLDS, "Neg", broken)
    for error in (TypeError(), ValueError(), IndexError(), RuntimeError(), NotImplementedError()):
        with pytest.raises(type(error)):
            ptir.from_onnx(m)


def test_constants_that_do_not_fit_their_operator() -> None:
    """Folds of constants of wrong shapes and values: a diagnostic, or a program that verifies."""
    from ptir_tools.bridges.onnx.folding import FOLDS

    rng = random.Random(1)
    values: list[Any] = [0, 2, -3, [], [0], [1, 0], [-9, 7, 2], [[1, 2], [3, 4]], [10**5]]
    for op in sorted(FOLDS):
        schema = onnx.defs.get_schema(op)
        least = max(schema.min_input, 1)
        for _ in range(20):
            count = rng.randint(least, max(least, min(schema.max_input, 4)))
            names = [f"c{i}" for i in range(count)]
            constants = {name: np.array(rng.choice(values), np.int64) for name in names}
            attrs = {"to": 1} if op == "Cast" else {"axis": rng.choice([0, 1, -3])} if "axis" in schema.attributes else {}
            m = model([node(op, " ".join(names), "y", **attrs), node("Cast", "y", "z", to=1)], {}, ["z"], constants)
            try:
                ptir.verify(ptir.from_onnx(m))
            except ptir.Rejected:
                pass


@pytest.mark.parametrize(
    ("indices", "fits"), [([1, 3], True), ([1, 4], False), ([-1, 0], False), ([[0, 1], [1, 1]], True), ([[0, 2], [1, 1]], False)]
)
def test_sparse_initializers(indices: Any, fits: bool) -> None:
    values = numpy_helper.from_array(np.array([5, 7], np.float32), "w")
    m = model([node("Add", "x w", "y")], {"x": [2, 2]}, ["y"])
    m.graph.sparse_initializer.append(helper.make_sparse_tensor(values, numpy_helper.from_array(np.array(indices), "i"), [2, 2]))
    if not fits:
        assert "do not fit its shape" in _refused(m)
        return
    assert ptir.run(ptir.from_onnx(m), {"x": np.zeros((2, 2), np.float32)})["y"].tolist() == [[0, 5], [0, 7]]
    m.graph.sparse_initializer[0].indices.data_location = 1
    m.graph.sparse_initializer[0].indices.external_data.add(key="location", value="../secret.bin")
    assert "outside" in _refused(m)


def test_info_tells_of_a_refused_model(tmp_path: Path) -> None:
    m = model([node("Unique", "x", "n"), node("Neg", "x", "y")], {"x": ["N", 3]}, ["y", "n"], {"unused": np.zeros(2, np.float32)})
    path = tmp_path / "m.onnx"
    path.write_bytes(m.SerializeToString())
    assert run_ptir("verify", str(path)).status == 1
    done = run_ptir("info", str(path))
    assert done.status == 0 and "refused   UnsupportedOnnx: Unique" in done.text
    assert "operators 2: 1 Neg, 1 Unique" in done.text and "tensor<f32, ?N, 3>" in done.text
    facts = json.loads(run_ptir("info", "--json", str(path)).text)
    assert [v["name"] for v in facts["model"]["inputs"]] == ["x"] and [v["name"] for v in facts["model"]["outputs"]] == ["y", "n"]
    assert facts["model"]["operator_sets"]["ai.onnx"] == m.opset_import[0].version and facts["refused"]
    m.graph.node.remove(m.graph.node[0])
    m.graph.output.remove(m.graph.output[1])
    path.write_bytes(m.SerializeToString())
    facts = json.loads(run_ptir("info", "--json", str(path)).text)
    assert facts["model"]["operators"] == {"Neg": 1} and facts["ops"] == {"neg": 1}


@pytest.mark.parametrize("given", [False, True])
def test_a_branch_whose_types_do_not_fit_stops_the_run_only_where_it_is_taken(given: bool) -> None:
    yes, no = (
        _body([node("Reshape", f"x {to}", "t"), node("ReduceSum", "t", "s", keepdims=0)], {}, [("s", F, [])])
        for to in ("six", "eight")
    )
    m = model(
        [node("If", "p", "y", then_branch=yes, else_branch=no)],
        {"p": (9, []), "x": ["N"]},
        ["y"],
        {"six": np.array([2, 3]), "eight": np.array([2, 4])},
    )
    shapes = {"x": [6]} if given else {}
    program = same(m, {"p": np.array(True), "x": noise(6)}, shapes=shapes)
    for engine in ENGINES:
        with pytest.raises(ptir.Rejected, match="from 6 to 8"):
            ptir.run(program, {"p": np.array(False), "x": noise(6)}, engine=engine)


def test_factors_of_a_product_have_one_extent_where_they_are_summed() -> None:
    """Exporters of growing caches call the length of each cache by another name."""
    m = model([node("MatMul", "x k", "s"), node("MatMul", "s v", "y")], {"x": [2, 3], "k": [3, "P"], "v": ["Q", 3]}, ["y"])
    program = same(m, {"x": noise(2, 3), "k": noise(3, 5), "v": noise(5, 3)})
    with pytest.raises(ptir.Rejected):
        ptir.run(program, {"x": noise(2, 3), "k": noise(3, 5), "v": noise(6, 3)})


def test_channels_that_a_reshape_makes_are_those_of_the_weights() -> None:
    nodes = [node("Reshape", "x to", "h"), node("Conv", "h w", "y", pads=[1, 1, 1, 1])]
    m = model(nodes, {"x": ["N", 9]}, ["y"], {"to": np.array([1, -1, 3, 3]), "w": noise(4, 6, 3, 3)})
    program = same(m, {"x": noise(6, 9)})
    with pytest.raises(ptir.Rejected):
        ptir.run(program, {"x": noise(7, 9)})


def test_a_shape_from_a_root_of_a_number_is_known() -> None:
    nodes = [
        node("Pow", "count half", "root"), node("Cast", "root", "n", to=I64), node("Concat", "n rest", "to", axis=0),
        node("Reshape", "x to", "y"),
    ]  # fmt: skip
    weights = {"count": np.float32([16]), "half": np.float32(0.5), "rest": np.array([-1])}
    same(model(nodes, {"x": [8]}, ["y"], weights), {"x": noise(8)})


def declared_model(made: Any, inputs: dict[str, Any], shape: list[Any]) -> Any:
    """A model of one node whose output has a declared shape."""
    m = model([made], inputs, ["y"])
    m.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", F, shape))
    return m


@pytest.mark.parametrize(
    "made, x, operand, shape, bad",
    [
        (node("Reshape", "x i", "y"), [2, 6], [3, -1], [3, 4], [4, 3]),
        (node("Reshape", "x i", "y"), [3, 4], [0, 4], [3, 4], [4, 0]),
        (node("Expand", "x i", "y"), [3, 1], [1, 2], [3, 2], [3, 1]),
        (node("Tile", "x i", "y"), [3, 2], [1, 2], [3, 4], [2, 1]),
        (node("ReduceSum", "x i", "y", keepdims=0), [3, 2, 2], [-1], [3, 2], [0]),
        (node("ReduceSum", "x i", "y", keepdims=0), [3, 2, 2], [1], [3, 2], [3]),
        (node("ReduceMax", "x i", "y"), [3, 2, 2], [2, 0], [1, 2, 1], [1, 2]),
        (node("Unsqueeze", "x i", "y"), [3, 4], [3, 1], [3, 1, 4, 1], [0, 1]),
        (node("Squeeze", "x i", "y"), [3, 1, 1, 4], [-2], [3, 1, 4], [0]),
        (node("CumSum", "x i", "y"), [3, 3], 1, [3, 3], 2),
    ],
)
def test_a_declared_type_decides_instead_of_an_operand_that_is_known_at_run_time(
    made: Any, x: list[int], operand: Any, shape: list[int], bad: Any
) -> None:
    given = np.array(operand, np.int64)
    m = declared_model(made, {"x": x, "i": (I64, list(given.shape))}, shape)
    program = same(m, {"x": noise(*x), "i": given})
    for engine in ENGINES:
        with pytest.raises(ptir.Rejected, match="outside"):
            ptir.run(program, [noise(*x), np.array(bad, np.int64)], engine=engine)


def test_axes_of_unknown_number_are_chosen_by_the_declared_type() -> None:
    m = declared_model(node("ReduceSum", "x i", "y"), {"x": [3, 2, 2], "i": (I64, ["k"])}, [1, 1, 1])
    program = same(m, {"x": noise(3, 2, 2), "i": np.array([2, 0, 1])})
    (y,) = ptir.run(program, [noise(3, 2, 2), np.zeros(0, np.int64)]).values()
    np.testing.assert_allclose(y, noise(3, 2, 2).sum(keepdims=True), rtol=1e-5)


def test_grids_and_blocks_over_symbols() -> None:
    for padding in ("zeros", "border", "reflection"):
        made = [node("GridSample", "x g", "y", padding_mode=padding, align_corners=1, mode="linear")]
        m = model(made, {"x": ["b", 2, "h", "w"], "g": ["b", "p", "q", 2]}, ["y"])
        same(m, {"x": noise(2, 2, 4, 5), "g": 1.5 * noise(2, 3, 4, 2)})
        given = [noise(2, 2, 1, 5), 1.5 * noise(2, 3, 4, 2)]
        one = ptir.from_onnx(m, shapes={"x": (2, 2, 1, 5)})  # an axis of one element, which ONNX's evaluator divides by
        (x,), (y,) = (ptir.run(p, given).values() for p in (ptir.from_onnx(m), one))
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)
    m = model(
        [node("Col2Im", "x i k", "y")], {"x": ["b", 8, 6]}, ["y"], {"i": np.array([3, 4]), "k": np.array([2, 2])}
    )  # fmt: skip
    same(m, {"x": noise(3, 8, 6)})


def test_a_remainder_by_an_extent_is_one() -> None:
    made = [
        node("Shape", "x", "n", start=0, end=1), node("Mod", "c n", "k"), node("Slice", "x k n z", "a"),
        node("Slice", "x z k z", "b"), node("Concat", "a b", "y", axis=0),
    ]  # fmt: skip
    m = model(made, {"x": ["n", 2]}, ["y"], {"c": np.array([-1]), "z": np.array([0])})
    assert str(same(m, {"x": noise(4, 2)}).main.result_types[0]) == "tensor<f32, ?nx2>"


EINSUMS = [  # equations, and the shapes of their operands
    ("...ij,...jk", (2, 3, 4, 5), (2, 3, 5, 6)),
    ("...ij,...jk", (2, 3, 4, 5), (3, 5, 6)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)),
    ("iij->j", (3, 3, 2)),
    ("iii", (3, 3, 3)),
    ("ij,ij->ij", (1, 3), (2, 3)),
    ("ij,ij->", (1, 3), (2, 3)),
    ("i,j", (3,), (2,)),
    ("i...->...", (3, 2, 2)),
    ("bhwc,hkc->bhwk", (2, 3, 4, 5), (3, 6, 5)),
]


@pytest.mark.parametrize("symbols", [False, True])
@pytest.mark.parametrize(("equation", "shapes"), [(e, s) for e, *s in EINSUMS])
def test_einsums_are_those_of_numpy(equation: str, shapes: list[tuple[int, ...]], symbols: bool) -> None:
    """With named extents, too: those of one letter have one name."""
    feeds = {f"x{k}": noise(*s) for k, s in enumerate(shapes)}
    extents = [[f"d{n}" if symbols and n > 1 else n for n in s] for s in shapes]
    m = model([node("Einsum", " ".join(feeds), "y", equation=equation)], dict(zip(feeds, extents, strict=True)), ["y"])
    (found,) = ptir.run(ptir.from_onnx(m), feeds).values()
    np.testing.assert_allclose(found, np.einsum(equation, *feeds.values()), rtol=1e-4, atol=1e-5)
