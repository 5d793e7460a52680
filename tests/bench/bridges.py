"""Models of other projects that come in: how long ResNet-50 takes as a file of ONNX, and how much memory, as multiples of its
weights beyond what the imports take. The peer is `onnx.load`, the parsing alone. Needs the extra `onnx`; no row without it."""

from __future__ import annotations

import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROUNDS = 3
STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))  # blocks, width
_CHILD = """
import json, resource, sys, time
import numpy, onnx
import ptir_tools as ptir
from ptir_tools.bridges.onnx import importer, ops
from ptir_tools.core import verify
def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) * 1024
path, weights, ours = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "ours"
ptir.read(sys.argv[4]) if ours else onnx.load(sys.argv[4])
before, start = peak(), time.perf_counter()
made = ptir.read(path) if ours else onnx.load(path)
print(json.dumps([time.perf_counter() - start, (peak() - before) / weights]))
"""


def resnet50(size: int = 224, blocks: tuple[tuple[int, int], ...] = STAGES) -> Any:
    """ResNet-50 with random weights as a ModelProto, batch normalization folded into its 53 convolutions."""
    from onnx import TensorProto, helper, numpy_helper

    rng, nodes, weights = np.random.default_rng(0), [], []

    def weight(name: str, *shape: int) -> str:
        data = rng.standard_normal(shape, np.float32) * np.float32(np.sqrt(2 / max(int(np.prod(shape[1:])), 1)))
        weights.append(numpy_helper.from_array(data, name))
        return name

    def conv(x: str, name: str, channels: tuple[int, int], kernel: int, stride: int = 1, relu: bool = True) -> str:
        operands = [x, weight(f"{name}.weight", channels[1], channels[0], kernel, kernel), weight(f"{name}.bias", channels[1])]
        pads = [kernel // 2] * 4
        nodes.append(helper.make_node("Conv", operands, [name], kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads))
        if relu:
            nodes.append(helper.make_node("Relu", [name], [f"{name}.relu"]))
        return f"{name}.relu" if relu else name

    x, have = conv("image", "stem", (3, 64), 7, 2), 64
    nodes.append(helper.make_node("MaxPool", [x], ["pool"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4))
    x = "pool"
    for stage, (count, width) in enumerate(blocks):
        for block in range(count):
            name, stride = f"layer{stage}.{block}", 2 if stage and not block else 1
            y = conv(x, f"{name}.a", (have, width), 1)
            y = conv(y, f"{name}.b", (width, width), 3, stride)
            y = conv(y, f"{name}.c", (width, 4 * width), 1, relu=False)
            skip = x if block else conv(x, f"{name}.skip", (have, 4 * width), 1, stride, relu=False)
            nodes.append(helper.make_node("Add", [y, skip], [f"{name}.sum"]))
            nodes.append(helper.make_node("Relu", [f"{name}.sum"], [name]))
            x, have = name, 4 * width
    nodes.append(helper.make_node("GlobalAveragePool", [x], ["mean"]))
    nodes.append(helper.make_node("Flatten", ["mean"], ["flat"]))
    nodes.append(helper.make_node("Gemm", ["flat", weight("fc.weight", 1000, have), weight("fc.bias", 1000)], ["y"], transB=1))
    given = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, size, size])
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1000])
    graph = helper.make_graph(nodes, "resnet50", [given], [made], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def measured(path: Path, weights: int, small: Path, ours: bool) -> tuple[float, float]:
    """Seconds, and the peak of memory beyond imports over the bytes of the weights, in a process of its own that has read a small
    model before."""
    command = [sys.executable, "-c", _CHILD, str(path), str(weights), "ours" if ours else "peer", str(small)]
    seconds, share = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return seconds, share


def rows() -> Iterator[tuple[str, float, float | None, str]]:
    """Import of ResNet-50, its weights in the file, and next to it."""
    if importlib.util.find_spec("onnx") is None:
        return
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        model, small = resnet50(), Path(folder, "small.onnx")
        onnx.save(resnet50(64, ((1, 8),)), small)
        weights = sum(len(t.raw_data) for t in model.graph.initializer)
        paths = {"in the file": Path(folder, "in.onnx"), "outside": Path(folder, "out.onnx")}
        onnx.save(model, paths["in the file"])
        onnx.save(model, paths["outside"], save_as_external_data=True, location="out.data")
        del model
        for where, path in paths.items():
            pairs = [(measured(path, weights, small, True), measured(path, weights, small, False)) for _ in range(ROUNDS)]
            for i, what, unit in ((0, "import", "s"), (1, "memory over weights of", "times")):
                ours, theirs = (statistics.median(pair[k][i] for pair in pairs) for k in range(2))
                yield f"{what} ResNet-50, weights {where}", ours, theirs, unit
