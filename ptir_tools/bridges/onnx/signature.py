"""The inputs of a model: their types, the symbols of their extents, and those that are constants."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Sequence

from ptir_tools.bridges.onnx.protocols import spelled
from ptir_tools.bridges.onnx.table import dtype_of, refused
from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.diagnostics import UsageError, unknown_name
from ptir_tools.core.dialect import BIND, SHAPES, Options
from ptir_tools.core.dtypes import DType
from ptir_tools.core.lazy import lazy, np
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.types import Dim, Sym, sym
from ptir_tools.dialects.ptir import PLACEHOLDERS
from ptir_tools.dialects.ptir.builder.build import Graph, Tensor

if TYPE_CHECKING:
    import onnx
else:
    onnx = lazy("onnx")


class Signature:
    """What is known of the inputs of a model, by the file and by the options."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self.numbers = dict(options[BIND])  # extents by symbol
        self.symbols: dict[str, None] = {}  # of the inputs
        self.names: dict[str, str] = {}  # parameters, and what the model calls them

    def bind(self, graph: onnx.GraphProto) -> None:
        """Bind the symbols that the given shapes of inputs determine. Raises UsageError."""
        inputs = {v.name: v for v in graph.input}
        constants = self._options[PLACEHOLDERS]
        for name in (*constants, *self._options[SHAPES]):
            if name not in inputs and not is_sequence(inputs.get(name.rpartition(".")[0])):
                raise unknown_name("input", name, inputs, " to make a constant" if name in constants else " whose shape is given")
        for value in graph.input:
            wanted = self._options[SHAPES].get(value.name)
            if wanted is None or (t := tensor_of(value)) is None or not t.HasField("shape"):
                continue
            dims = self.dims(value)
            for d, n in zip(dims, wanted, strict=False):
                if n is not None and (d if isinstance(d, int) else self.numbers.setdefault(d, n)) != n:
                    bound = d if isinstance(d, int) else f"{d} = {self.numbers[d]}"
                    raise UsageError(f"the shape {list(wanted)} for input `{value.name}` has {n} where its extent is {bound}")
            if len(dims) != len(wanted):
                raise UsageError(f"the shape {list(wanted)} for input `{value.name}` has another rank than {dims}")

    def elements(self, value: onnx.ValueInfoProto) -> list[onnx.ValueInfoProto]:
        """The elements of an input that is a sequence: as many as have a shape, `name.0`, `name.1` and so on."""
        names = (f"{value.name}.{k}" for k in range(len(self._options[SHAPES])))
        return [
            onnx.ValueInfoProto(name=name, type=value.type.sequence_type.elem_type)
            for name in itertools.takewhile(lambda name: name in self._options[SHAPES], names)
        ]

    def datum(self, value: onnx.ValueInfoProto, graph: Graph) -> Tensor | Array:
        """An input as a parameter of `graph`, or as a constant. Raises Violation and UsageError."""
        t = tensor_of(value)
        if t is None:
            kind = (value.type.WhichOneof("value") or "value without a type").removesuffix("_type")
            way = f"give the shape of each element: --shape {value.name}.0=2,3 --shape {value.name}.1=2,3"
            raise refused(f"input `{value.name}` is a {kind}; PTIR has tensors only", way if kind == "sequence" else None)
        dtype = dtype_of(t.elem_type)
        wanted = self._options[SHAPES].get(value.name)
        names = self.dims(value) if t.HasField("shape") else wanted
        if names is None or None in names:
            raise refused(f"input `{value.name}` has no rank", f"give its shape: --shape {value.name}=1,2,3")
        self.symbols.update((d, None) for d in names if isinstance(d, str))
        shape: list[Dim] = [self.numbers.get(d, sym(d)) if isinstance(d, str) else d for d in names if d is not None]
        if value.name in self._options[PLACEHOLDERS]:
            return frozen(self._options[PLACEHOLDERS][value.name], dtype, shape, value.name)
        name, n = spelled(value.name), 0
        while name in self.names:
            name, n = f"{spelled(value.name)}_{n + 1}", n + 1
        self.names[name] = value.name
        return graph.input(name, dtype, shape)

    def dims(self, value: onnx.ValueInfoProto) -> list[int | str]:
        """The extents of an input: numbers, and the names of symbols. Exporters write -1 and 0 for one that is not known."""
        result: list[int | str] = []
        t = tensor_of(value)
        for i, d in enumerate(t.shape.dim if t is not None else ()):
            symbol = os.fsdecode(d.dim_param)  # protobuf gives bytes for what is not UTF-8
            known = any(c.isalnum() for c in symbol)  # Paddle calls every unknown extent `?`
            result.append(int(d.dim_value) if d.dim_value > 0 else symbol if known else f"{spelled(value.name)}_{i}")
        return result

    def declared(self, t: onnx.TypeProto.Tensor | None) -> tuple[Dim, ...] | None:
        """The shape of a declared type: numbers and extents of inputs; None where it is not whole."""
        if t is None or not t.HasField("shape"):
            return None
        shape: list[Dim] = []
        for d in t.shape.dim:
            if d.HasField("dim_value") and d.dim_value >= 0:
                shape.append(d.dim_value)
            elif d.dim_param in self.symbols:
                shape.append(self.numbers.get(d.dim_param, sym(d.dim_param)))
            else:
                return None
        return tuple(shape)


def tensor_of(value: onnx.ValueInfoProto) -> onnx.TypeProto.Tensor | None:
    """The type of an input that is a tensor, or an optional one, which is taken as there; None for others."""
    t = value.type
    if t.HasField("optional_type"):
        t = t.optional_type.elem_type
    return t.tensor_type if t.HasField("tensor_type") else None


def is_sequence(value: onnx.ValueInfoProto | None) -> bool:
    """Whether an input is a sequence."""
    return value is not None and value.type.HasField("sequence_type")


def frozen(given: object, dtype: DType, shape: Sequence[Dim], name: str) -> Array:
    """An input that is a constant: an array, or the text of a number or list. Raises UsageError."""
    try:
        array = np.asarray(json.loads(given) if isinstance(given, str) else given).astype(arrays.numpy_dtype(dtype))
    except (ValueError, TypeError):
        raise UsageError(f"--set {name}={given}: a number or a list of numbers is wanted") from None
    fits = len(shape) == array.ndim and all(isinstance(d, Sym) or d == n for d, n in zip(shape, array.shape, strict=True))
    if not fits:
        raise UsageError(f"--set {name}: the input has shape {list(shape)}, the value {list(array.shape)}")
    return array
