"""Kernels as one program: a function each, called in order by the entry, with memory between them. Equal ones are the same."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from ptir_tools.convert.naming import spelled
from ptir_tools.convert.ptir_to_pto.partition import Kernel, Partition
from ptir_tools.convert.ptir_to_pto.values import memory_type
from ptir_tools.core.builder import single_function
from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Function, Value
from ptir_tools.dialects import load_dialect

Names = Sequence[tuple[Value, str]]


def linked(main: Function, partition: Partition) -> Program:
    """The program of all kernels. Its parameters are those of `main`, memory between kernels, and memory for the results."""
    inputs = list(zip(main.params, map(spelled, main.attrs.get("input_names") or [p.name for p in main.params]), strict=True))
    results = [x for x in main.results if isinstance(x, Value)]
    outputs = list(zip(results, map(spelled, main.attrs.get("output_names") or [x.name for x in results]), strict=True))
    if len(partition.kernels) == 1:
        return partition.tiler.largest(
            partition.kernels[0], partition.shapes(partition.kernels[0]), spelled(main.name), inputs, outputs
        )
    between = [(v, spelled(v.name)) for kernel in partition.kernels for v in kernel.outputs if v not in results]
    program, builder = single_function(load_dialect("pto"), spelled(main.name))
    program.main.loc = main.loc
    memory = {v: builder.param(memory_type(v), name) for v, name in (*inputs, *between, *outputs)}
    names: dict[Hashable, str] = {}  # equal kernels are one function
    for kernel in partition.kernels:
        key = partition.key(kernel)
        if (name := names.get(key)) is None:
            names[key] = name = f"{program.main.name}_{len(names)}"
            made = partition.tiler.largest(kernel, partition.shapes(kernel), name, *_signature(kernel))
            program.functions.insert(len(program.functions) - 1, made.main)
            program.attrs = made.attrs
        builder.op("func.call", [memory[v] for v in (*kernel.inputs, *kernel.outputs)], callee=name, to=())
    return program


def _signature(kernel: Kernel) -> tuple[Names, Names]:
    """The parameters of a kernel by name."""
    return [(v, spelled(v.name)) for v in kernel.inputs], [(v, spelled(v.name)) for v in kernel.outputs]
