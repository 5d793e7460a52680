"""Protocols of the importer, for the modules that it imports: they cannot import it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ptir_tools.bridges.extents import Size
from ptir_tools.bridges.node import Place
from ptir_tools.core.arrays import Array
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.ir import Operand
from ptir_tools.core.limits import Expansion
from ptir_tools.core.records import dataclass
from ptir_tools.core.source import Loc, Source
from ptir_tools.core.typed import TYPE_CHECKING, Any, Protocol, TypeAlias
from ptir_tools.core.types import Dim, Sym
from ptir_tools.dialects.ptir.builder.build import Block, Tensor

if TYPE_CHECKING:
    import onnx


@dataclass(slots=True, frozen=True)
class Items:
    """A sequence, whose elements are tensors or known arrays."""

    items: tuple[Datum, ...]


@dataclass(slots=True, frozen=True)
class Bounded:
    """The number of an axis of which only the first elements count, and how many they are, a scalar si64."""

    axis: int
    count: Tensor


Datum: TypeAlias = Tensor | Array | Items | None  # an array is known while reading; None is an operand that is left out
Attribute = Any  # of a node: a number, text, proto or list of these, as the schema of its operator says


class Importer(Protocol):
    """The reader of a model."""

    source: Source
    diagnostics: Diagnostics
    expansion: Expansion

    @property
    def model(self) -> onnx.ModelProto: ...
    @property
    def poisoned(self) -> Exception: ...
    @property
    def place(self) -> Place: ...
    @property
    def counts(self) -> dict[Operand, list[Size]]: ...
    @property
    def kept(self) -> list[onnx.NodeProto]: ...
    @property
    def squeezed(self) -> dict[Sym, Loc]: ...
    @property
    def bounded(self) -> dict[Operand, Bounded]: ...
    def array(self, proto: onnx.TensorProto) -> Array: ...
    def dense(self, proto: onnx.SparseTensorProto) -> Array: ...
    def counted(self, datum: Datum) -> list[Size] | None: ...
    def wanted(self, scope: Scope, name: str) -> None: ...
    def captured(self, graph: onnx.GraphProto, outer: Scope) -> list[str]: ...
    def inner_scope(self, outer: Scope) -> Scope: ...
    def region_scope(self, outer: Scope, block: Block) -> Scope: ...
    def initializers(self, graph: onnx.GraphProto, scope: Scope) -> None: ...
    def run(self, nodes: Sequence[onnx.NodeProto], scope: Scope) -> None: ...


class Scope(Protocol):
    """The values of a graph, region or function body by name, and their block."""

    importer: Importer
    block: Block
    opsets: Mapping[str, int]
    attrs: Mapping[str, Attribute]
    top: bool
    values: dict[str, Datum]
    made: dict[int, tuple[Array, Tensor]]  # tensors of known arrays, by identity

    def datum(self, name: str) -> Datum: ...
    def tensor(self, datum: Datum, name: str = "") -> Tensor | None: ...
    def measured(self, d: Dim | Size) -> Tensor: ...
