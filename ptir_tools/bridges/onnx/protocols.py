"""The values of a model by name while it is read, and what the modules that the importer imports ask of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence

from ptir_tools.bridges import extents
from ptir_tools.bridges.extent_ops import measured
from ptir_tools.bridges.extents import Size
from ptir_tools.bridges.node import Place
from ptir_tools.bridges.onnx.listing import Listing, graphs_of
from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dtypes import PTIR_DTYPES, DType
from ptir_tools.core.ir import Literal, Operand, Value
from ptir_tools.core.lazy import np, regex
from ptir_tools.core.limits import Expansion, LimitExceeded, current
from ptir_tools.core.records import dataclass
from ptir_tools.core.source import Loc, Source
from ptir_tools.core.spelling import proposed
from ptir_tools.core.typed import TYPE_CHECKING, Any, Protocol, TypeAlias, cast
from ptir_tools.core.types import Dim, Sym, tensor
from ptir_tools.core.violations import Violation
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
POISON = cast("Datum", object())  # the value of a refused node: its readers are not reported
OF_NUMPY = {d.numpy: d for d in PTIR_DTYPES}
_OTHER = regex(r"[^\w.$]")
Attribute = Any  # of a node: a number, text, proto or list of these, as the schema of its operator says


class Poisoned(Exception):
    """A node reads a refused value."""


class Stored(Protocol):
    """The arrays of a model."""

    def array(self, t: onnx.TensorProto, /) -> Array: ...
    def dense(self, s: onnx.SparseTensorProto, /) -> Array: ...


class Importer(Protocol):
    """The reader of a model."""

    source: Source
    diagnostics: Diagnostics
    expansion: Expansion

    @property
    def model(self) -> onnx.ModelProto: ...
    @property
    def place(self) -> Place: ...
    @property
    def counts(self) -> dict[Operand, list[Size]]: ...
    @property
    def listing(self) -> Listing: ...
    @property
    def stored(self) -> Stored: ...
    @property
    def squeezed(self) -> dict[Sym, Loc]: ...
    @property
    def bounded(self) -> dict[Operand, Bounded]: ...
    def counted(self, datum: Datum) -> list[Size] | None: ...
    def not_zero(self, extent: extents.Extent) -> None: ...

    def wanted(self, scope: Scope, name: str) -> None: ...
    def initializers(self, graph: onnx.GraphProto, scope: Scope) -> None: ...
    def run(self, nodes: Sequence[onnx.NodeProto], scope: Scope) -> None: ...


class Scope:
    """The values of a graph, a region or a function body by name, and the block that they are in."""

    def __init__(
        self, importer: Importer, block: Block, opsets: Mapping[str, int], attrs: Mapping[str, Attribute], top: bool
    ) -> None:
        self.importer, self.block, self.opsets, self.attrs, self.top = importer, block, opsets, attrs, top
        self.values: dict[str, Datum] = {}
        self.made: dict[int, tuple[Array, Tensor]] = {}  # tensors of constant arrays, by identity

    def datum(self, name: str) -> Datum:
        """The value called `name`. Raises Violation when nothing defines it."""
        if name not in self.values:
            maker = next((n for n in self.importer.listing.nodes if name in n.output), None)
            if maker is not None:
                called = f" `{maker.name}`" if maker.name else ""
                message = f"`{name}` is used before the node{called} of {maker.op_type}, which computes it"
                raise Violation("InvalidModel", message, help="sort the nodes: each comes after those that it reads")
            help = proposed(name, filter(None, self.values), "{}")[0]
            raise Violation("InvalidModel", f"nothing defines `{name}`", help=help)
        if self.values[name] is POISON:
            raise Poisoned
        return self.values[name]

    def tensor(self, datum: Datum, name: str = "") -> Tensor | None:
        """`datum` as a tensor of the block: an array becomes a constant once."""
        if datum is None or isinstance(datum, Tensor):
            return datum
        if isinstance(datum, Items):
            what = f"`{name}` is a sequence, and a tensor is wanted" if name else "a sequence is where a tensor is wanted"
            raise Violation("UnsupportedOnnx", what)
        entry = self.made.get(id(datum))
        if entry is None:
            result = self._symbolic(datum) if datum.dtype == object else self._constant(datum)
            if self.top and name and isinstance(result.operand, Value):
                result.named(spelled(name))
            self.made[id(datum)] = entry = (datum, result)
        return entry[1]

    def _constant(self, array: Array) -> Tensor:
        dtype = OF_NUMPY.get(array.dtype.name)
        if dtype is None:
            raise Violation("UnsupportedOnnx", f"PTIR has no {array.dtype}")
        t = tensor(dtype, array.shape)
        if t.count * dtype.size > current().literal_bytes:
            raise LimitExceeded(f"a literal of {t}", "--max-literal-bytes", self.importer.place.loc)
        varied = array.size > 1 and array.flat[0] != array.flat[1]
        literal = Literal(t, _bytes(array, dtype)) if varied else arrays.to_literal(array, t)
        return self.block.op("constant", value=literal)

    def _symbolic(self, array: Array) -> Tensor:
        """A tensor of integers and extents, which are measured at run time."""
        parts = [self.measured(x).reshape([1]) for x in array.reshape(-1)]
        whole = parts[0] if len(parts) == 1 else self.block.op("concat", parts, 0)
        return whole if array.ndim == 1 else whole.reshape(array.shape)

    def measured(self, d: Dim | Size) -> Tensor:
        """An extent as a scalar si64."""
        return measured(self.block, extents.of(d))

    def inner(self) -> Scope:
        """A scope for a subgraph that is inlined: all values are visible."""
        inner = Scope(self.importer, self.block, self.opsets, self.attrs, False)
        inner.values, inner.made = dict(self.values), self.made
        return inner

    def region(self, block: Block) -> Scope:
        """A scope for a subgraph that becomes a region: constant values are visible, others must be passed in."""
        inner = Scope(self.importer, block, self.opsets, self.attrs, False)
        inner.values = {k: v for k, v in self.values.items() if not isinstance(v, (Tensor, Items))}
        return inner

    def captured(self, graph: onnx.GraphProto) -> list[str]:
        """The names of tensors and sequences that a subgraph reads."""
        return [name for name in free_names(graph) if isinstance(self.values.get(name), (Tensor, Items))]


def _bytes(array: Array, dtype: DType) -> bytes:
    """The little-endian bytes of an array, without a copy where it is a view of such bytes."""
    base: object = array
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    whole = isinstance(base, bytes) and len(base) == array.nbytes and array.flags.c_contiguous
    return (
        base if isinstance(base, bytes) and whole and dtype.bits >= 8 and sys.byteorder == "little" else arrays.pack(array, dtype)
    )


def spelled(name: str) -> str:
    """`name` as text PTIR can spell it."""
    return _OTHER.sub("_", name) or "v"


def free_names(graph: onnx.GraphProto) -> Iterator[str]:
    """The names that a subgraph reads and does not define, in order, each once."""
    defined = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    defined |= {t.values.name for t in graph.sparse_initializer}
    names: dict[str, None] = {}
    for node in graph.node:
        for name in (*node.input, *(n for g in graphs_of(node) for n in free_names(g))):
            if name and name not in defined:
                names[name] = None
        defined.update(node.output)
    names.update((v.name, None) for v in graph.output if v.name not in defined)
    return iter(names)
