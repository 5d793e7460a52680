"""The models of testdata/models, once they are optimized: steps, millions of floating-point operations, and megabytes that the
steps read and write, next to XLA on the same program; and nodes as ONNX, next to ONNX Runtime's extended level.

A step of ours is one of the native engine, one of XLA's an instruction outside of a fusion. Constants, parameters and views are
none. With loops only steps and nodes are compared, since XLA does not count iterations.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

import ptir_tools as ptir
from ptir_tools.core.diagnostics import Diagnostics, Rejected
from ptir_tools.core.dialect import Program, clone
from ptir_tools.core.ir import Value, operand_type
from ptir_tools.core.symbols import bind
from ptir_tools.core.types import TensorType
from ptir_tools.engines import choose, native
from ptir_tools.engines.options import RunOptions
from ptir_tools.plan.liveness import Unit
from tests.bench.ir import Row
from tests.bench.translated import FOLDER, SYMBOLS

_FREE = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "iota")


def units(program: Program) -> list[Unit]:
    """The steps of the native engine for `program`, without constants and views."""
    ready = choose.optimized(clone(program), RunOptions(), Diagnostics(program.source))
    found = [unit for block in ready.blocks() for unit in native._partition(block)]
    return [u for u in found if not (u.is_single and (u[0].defn.is_constant or u[0].defn.view is not None))]


def megabytes(steps: list[Unit]) -> float:
    """What the steps read and write."""
    read = {x for u in steps for x in u.reads if isinstance(x, Value)}
    total = 0
    for u in steps:
        values = [*dict.fromkeys(x for x in u.reads if isinstance(x, Value))]
        values += [v for op in u for v in op.results if v in read or op is u[-1]]
        total += sum(t.nbytes for x in values if isinstance(t := operand_type(x), TensorType))
    return total / 1e6


def instructions(text: str) -> int:
    """The instructions of a compiled module of XLA that are steps."""
    inner = set(re.findall(r"(?:calls|to_apply)=%([\w.-]+)", text))
    count = 0
    for name, body in re.findall(r"^(?:ENTRY )?%([\w.-]+) \([^\n]*\{\n(.*?)^\}", text, re.DOTALL | re.MULTILINE):
        opcodes = re.findall(r"^ +(?:ROOT )?%\S+ = .*? ([a-z][a-z-]*)\(", body, re.MULTILINE)
        count += 0 if name in inner else sum(opcode not in _FREE for opcode in opcodes)
    return count


def compiled(program: Program, given: Mapping[str, np.ndarray]) -> Any:
    """`program`, compiled by XLA for these inputs; None without jax."""
    if find_spec("jax") is None:
        return None
    import jax

    return jax.jit(ptir.to_jax(program)).lower(*(given[p.name] for p in program.main.params)).compile()


def nodes(program: Program) -> tuple[int, int] | None:
    """The nodes of the optimized program as ONNX, and of the program itself after ONNX Runtime's extended level."""
    if find_spec("onnxruntime") is None:
        return None
    import onnx
    import onnxruntime

    try:
        ours, plain = (ptir.to_onnx(p) for p in (ptir.optimize(clone(program)), clone(program)))
    except Rejected:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.onnx")
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = path
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        onnxruntime.InferenceSession(plain.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return len(ours.graph.node), len(onnx.load(path).graph.node)


def rows() -> Iterator[Row]:
    """The rows of each model."""
    for path in sorted(FOLDER.glob("*.ptir")):
        program = clone(ptir.read(path))
        bind(program, SYMBOLS.get(path.stem, {}))
        peer = compiled(program, load_file(FOLDER / f"{path.stem}.inputs.safetensors"))
        steps = units(program)
        yield f"{path.stem}: steps", len(steps), None if peer is None else instructions(peer.as_text()), ""
        if (both := nodes(program)) is not None:
            yield f"{path.stem}: nodes of ONNX", *both, ""
        if any(op.regions for op in program.main.body):
            continue
        cost = {} if peer is None else peer.cost_analysis()
        flops = sum(row.operations.value or 0 for row in ptir.stats(ptir.optimize(clone(program)))) / 1e6
        yield f"{path.stem}: operations", flops, cost.get("flops", 0) / 1e6 or None, "million"
        yield f"{path.stem}: memory", megabytes(steps), cost.get("bytes accessed", 0) / 1e6 or None, "MB"
