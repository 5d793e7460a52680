"""The table of handlers of ONNX operators, and the node as a handler sees it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from ptir_tools.bridges import extents
from ptir_tools.bridges import node as context
from ptir_tools.bridges.onnx.protocols import Attribute, Datum, Items, Scope
from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import BF16, F16, F32, FP8_E4M3, FP8_E5M2, PTIR_DTYPES, SI4, UI4, DType
from ptir_tools.core.lazy import lazy, np
from ptir_tools.core.typed import TYPE_CHECKING, TypeVar
from ptir_tools.core.types import Dim, Shape, Sym
from ptir_tools.core.violations import Violation, attribute
from ptir_tools.dialects.ptir.builder.build import Graph, Tensor

if TYPE_CHECKING:
    import onnx
else:
    onnx = lazy("onnx")

Handler = Callable[["Node"], "Datum | Sequence[Datum]"]
H = TypeVar("H", bound=Handler)
DOMAIN = "com.microsoft"  # of ONNX Runtime
METADATA = "metadata"  # of a model: the attribute of every program that was read from ONNX
HANDLERS: dict[tuple[str, str], Handler] = {}  # by domain and operator
DEFAULTS: dict[tuple[str, str], Mapping[str, object]] = {}  # of the attributes of operators for which `onnx` has no schema
REFUSED: dict[tuple[str, str], str] = {}  # why an operator has no handler

# The dtypes by their numbers in onnx.TensorProto.DataType, from 0 on; `-` is one that PTIR lacks.
_NUMBERED = "- f32 ui8 si8 ui16 si16 si32 si64 - i1 f16 f64 ui32 ui64 cf32 cf64 bf16 fp8_e4m3 - fp8_e5m2 - ui4 si4"
_NAMED = {d.name: d for d in PTIR_DTYPES}
DTYPES = {number: _NAMED[name] for number, name in enumerate(_NUMBERED.split()) if name != "-"}
NUMBERS = {dtype: number for number, dtype in DTYPES.items()}
NAMES = {
    8: "strings", 18: "float8e4m3fnuz", 20: "float8e5m2fnuz", 23: "float4e2m1", 24: "float8e8m0", 25: "uint2", 26: "int2",
}  # fmt: skip
# The wider dtype for each one that PTIR lacks, and the operands that may be constants of such a dtype.
WIDER: dict[int, DType] = {18: F16, 20: F16, 23: FP8_E4M3, 24: F32, 25: UI4, 26: SI4}
KEPT = {"DequantizeLinear": (0, 1, 2), "Cast": (0,), "CastLike": (0,)}
NARROW = (BF16, F16, FP8_E4M3, FP8_E5M2)


def handles(*names: str, domain: str = "", **defaults: object) -> Callable[[H], H]:
    """Register a function as the handler of operators. It takes a `Node` and returns a datum per output. `defaults` are those of
    attributes, where `onnx` has no schema."""

    def register(handler: H) -> H:
        HANDLERS.update({(domain, name): handler for name in names})
        DEFAULTS.update({(domain, name): defaults for name in names if defaults})
        return handler

    return register


def refuses(reason: str, *names: str, domain: str = "") -> None:
    """Register the reason why operators have no handler."""
    REFUSED.update({(domain, name): reason for name in names})


def refused(reason: str, help: str | None = None) -> Violation:
    """The Violation that a handler raises for what PTIR cannot express."""
    return Violation("UnsupportedOnnx", reason, help=help)


def dtype_of(number: int | str, name: str = "") -> DType:
    """The dtype with the ONNX number `number`, which the attribute `name` is; operator sets before 6 name it. Raises Violation
    for one that PTIR lacks."""
    at = attribute(name) if name else None
    if isinstance(number, str):
        try:
            number = int(onnx.TensorProto.DataType.Value(number))
        except ValueError:
            raise Violation("InvalidModel", f"there is no type {number}", at=at) from None
    if number not in DTYPES:
        if number not in NAMES:
            raise Violation("InvalidModel", f"there is no type {number}", at=at)
        raise refused(f"PTIR has no {NAMES[number]}")
    return DTYPES[number]


class Node(context.Node):
    """The ONNX node that is translated: its operands, its attributes and the block that gets the new ops. It records what is read
    of it, so that nothing is ignored."""

    def __init__(
        self,
        scope: Scope,
        proto: onnx.NodeProto,
        attrs: Mapping[str, Attribute],
        opset: int,
        defaults: Mapping[str, object],
        lenient: bool = False,
    ) -> None:
        super().__init__(proto.op_type, scope.block)
        self.scope, self.proto, self._attrs, self.opset, self.defaults = scope, proto, attrs, opset, defaults
        self.lenient = lenient  # there is no schema: zero and empty are defaults, too
        self.read: set[str] = {"consumed_inputs"}  # attributes; this one of operator sets before 6 only allows to reuse memory
        self.used: set[int] = set()  # operands

    def __len__(self) -> int:
        """The number of operands, omitted ones in between included."""
        return len(self.proto.input)

    def has(self, i: int) -> bool:
        """Whether operand `i` is there; one that is a parameter of a function may be left out of its call."""
        name = self.proto.input[i] if i < len(self.proto.input) else ""
        return bool(name) and self.scope.values.get(name, name) is not None

    def datum(self, i: int) -> Datum:
        """Operand `i`: a tensor, a constant array, or None."""
        self.used.add(i)
        return self.scope.datum(self.proto.input[i]) if self.has(i) else None

    def __getitem__(self, i: int) -> Tensor:
        """Operand `i` as a tensor. Raises Violation when it is left out."""
        result = self.get(i)
        if result is None:
            raise Violation("InvalidModel", f"operand {i} is missing")
        return result

    def get(self, i: int) -> Tensor | None:
        """Operand `i` as a tensor, None when it is left out."""
        return self.scope.tensor(self.datum(i), self.proto.input[i]) if self.has(i) else None

    def all(self) -> list[Tensor]:
        """Every operand."""
        return [self[i] for i in range(len(self))]

    def known(self, i: int) -> Array:
        """Operand `i`, which must be constant, as an array. Raises Violation("OnnxNeedsConstant")."""
        datum = self.datum(i)
        if isinstance(datum, Tensor) and (counts := self.scope.importer.counted(datum)) is not None:
            datum = extents.settled(extents.vector(counts).reshape([fixed(d) for d in datum.shape]))
        if isinstance(datum, Tensor) and 0 in datum.shape and datum.tensor_type.is_static:
            return np.zeros([fixed(d) for d in datum.shape], arrays.numpy_dtype(datum.dtype))
        if isinstance(datum, Tensor):
            self.scope.importer.wanted(self.scope, self.proto.input[i])
            raise Violation(
                "OnnxNeedsConstant",
                f"operand {i} of {self.name}, `{self.proto.input[i]}`, decides the type of the result and is not a constant",
                help="when it is an input, make it a constant: --set NAME=[1,2,3]",
            )
        if isinstance(datum, Items):
            raise refused(f"operand {i} of {self.name} is a sequence")
        if datum is None:
            raise Violation("InvalidModel", f"operand {i} is missing")
        return datum

    def array(self, i: int) -> Array | None:
        """Operand `i` where it is a constant array, else None."""
        result = self.datum(i)
        return result if isinstance(result, np.ndarray) else None

    def dims(self, i: int) -> list[extents.Size]:
        """Operand `i` as integers and extents."""
        return extents.as_dims(self.known(i))

    def ints(self, i: int) -> list[int]:
        """Operand `i` as integers. Raises Violation for what depends on a symbol."""
        dims = self.dims(i)
        whole = [x for x in dims if isinstance(x, int)]
        if len(whole) < len(dims):
            raise refused(f"operand {i} of {self.name} depends on a symbolic extent: {dims}", "give the symbols with --bind")
        return whole

    def integer(self, i: int) -> int:
        """Operand `i` as one integer. Raises Violation."""
        if len(numbers := self.ints(i)) != 1:
            raise Violation("InvalidModel", f"operand {i} of {self.name} has {len(numbers)} elements; one is wanted")
        return numbers[0]

    def floats(self, i: int) -> list[float]:
        """Operand `i` as numbers."""
        return [float(x) for x in np.asarray(self.known(i)).reshape(-1)]

    def attr(self, name: str, default: object = None) -> Attribute:
        """An attribute of the node, else the schema's default, else `default`."""
        self.read.add(name)
        return self._attrs[name] if name in self._attrs else self.defaults.get(name, default)

    def given(self, name: str, default: object = None) -> Attribute:
        """An attribute of the node, else `default`, whatever the default of the schema."""
        self.read.add(name)
        return self._attrs.get(name, default)

    def choice(self, name: str, choices: Collection[str], default: str | None = None) -> str:
        """An attribute that is one of some words. Raises Violation when it is another."""
        word: str = self.attr(name, default)
        if word not in choices:
            raise Violation("InvalidModel", f"`{name}` of {self.name} is `{word}`, not one of {', '.join(choices)}")
        return word

    def ranked(self, i: int, rank: int) -> Tensor:
        """Operand `i`, of that rank. Raises Violation."""
        if (x := self[i]).rank != rank:
            raise Violation("InvalidModel", f"operand {i} of {self.name} is {x.type}; a rank of {rank} is wanted")
        return x

    def attributes(self) -> Mapping[str, Attribute]:
        """All attributes of the node; all are taken as read."""
        self.read.update(self._attrs)
        return self._attrs

    def idle(self, *names: str | int) -> None:
        """Attributes (by name) and operands (by position) have no effect on the result of this node."""
        self.read.update(x for x in names if isinstance(x, str))
        self.used.update(x for x in names if isinstance(x, int))

    def ignored(self) -> str:
        """What the node has and its handler did not read, in words; "" if there is nothing. An attribute may be ignored if it has
        its default; without a schema also if it is zero or empty."""
        for name, value in self._attrs.items():
            harmless = (name in self.defaults and value == self.defaults[name]) or (self.lenient and not value)
            if name not in self.read and not harmless:
                return f"the attribute `{name}`"
        return next((f"operand {i}, `{self.proto.input[i]}`" for i in range(len(self)) if i not in self.used and self.has(i)), "")

    @property
    def outputs(self) -> int:
        """The number of outputs, omitted ones in between included."""
        return len(self.proto.output)

    def wants(self, k: int) -> bool:
        """Whether output `k` has a name."""
        return k < len(self.proto.output) and bool(self.proto.output[k])

    def dtype(self, name: str, default: DType = F32) -> DType:
        """The dtype that an attribute names by number; 0 and absence are the default."""
        number = self.attr(name)
        return dtype_of(number, name) if number else default

    def axes(self, i: int, rank: int, name: str = "axes") -> list[int] | None:
        """Axes from operand `i` or, in older operator sets, from an attribute; counted from the front; None when absent."""
        entry = self.given(name)
        if entry is None and self.has(i):
            entry = self.ints(i)
        return None if entry is None else [axis(a, rank) for a in entry]


def fixed(d: Dim) -> int:
    """An extent that must be a number. Raises Violation for a symbol."""
    if not isinstance(d, int):
        raise refused(f"the operator asks for a number where the extent is the symbol {d}", "give the symbols with --bind")
    return d


def axis(a: int, rank: int) -> int:
    """An axis counted from the front. Raises Violation."""
    if not -rank <= a < max(rank, 1):
        raise Violation("InvalidModel", f"axis {a} is not one of a tensor of rank {rank}")
    return a + rank if a < 0 else a


def one_shape(*shapes: Shape) -> tuple[Dim, ...]:
    """The shape to which ONNX broadcasts tensors of these shapes. A symbol is taken as equal to any other extent; the run checks
    it. Raises Violation when they do not fit."""
    rank = max(map(len, shapes))
    out: list[Dim] = []
    for at in range(rank):
        ds = [s[at - rank + len(s)] for s in shapes if at - rank + len(s) >= 0]
        fixed = [d for d in ds if isinstance(d, int) and d != 1]
        if len(set(fixed)) > 1:
            raise Violation("InvalidModel", f"shapes do not broadcast: {', '.join(str(list(s)) for s in shapes)}")
        symbols = [d for d in ds if not isinstance(d, int)]
        out.append(fixed[0] if fixed else symbols[0] if symbols else 1)
    return tuple(out)


def stretched(x: Tensor, shape: Shape) -> Tensor:
    """`x` broadcast to `shape`. A symbol that must equal another extent is reshaped to it, which the run checks."""
    if x.shape == shape:
        return x
    lead = len(shape) - x.rank
    pairs = zip(x.shape, shape[lead:], strict=True) if lead >= 0 else [(2, 3)]
    if any(isinstance(d, int) and isinstance(e, int) and d not in (1, e) for d, e in pairs):
        raise Violation("InvalidModel", f"{x.type} does not broadcast to {list(shape)}")
    target = [d if d == 1 or d == e else e for d, e in zip(x.shape, shape[lead:], strict=True)]
    if tuple(target) != x.shape:
        x = x.reshape(target)
    return x if x.shape == shape else x.broadcast_to(shape)


def together(*xs: Tensor) -> list[Tensor]:
    """Tensors broadcast to one shape, as ONNX does it."""
    if all(x.shape == xs[0].shape for x in xs):
        return list(xs)
    shape = one_shape(*(x.shape for x in xs))
    return [stretched(x, shape) for x in xs]


class Broadcasting(Graph):
    """A program under construction whose elementwise ops broadcast their operands, as those of ONNX do."""

    def fitted(self, operands: list[Tensor]) -> list[Tensor]:
        """The operands broadcast to one shape. Raises Violation when they do not fit."""
        return together(*operands)


def paired(node: Node) -> list[Tensor]:
    """The two operands of a node. Before operator set 7 only the second is broadcast, and only with `broadcast`: its axes are
    those of the first from `axis` on, or the last ones. Raises Violation when they do not fit."""
    x, y = node[0], node[1]
    if node.opset >= 7:
        return [x, y]
    at, n = node.given("axis"), x.rank
    if node.attr("broadcast", 0):
        y = y.reshape([]) if all(d == 1 for d in y.shape) else y
        first = axis(at, n) if at is not None and y.rank else n - y.rank
        if 0 <= first <= n - y.rank:
            y = y.reshape([*[1] * first, *y.shape, *[1] * (n - first - y.rank)])
        if y.rank == n and one_shape(x.shape, y.shape) == x.shape:
            return [x, y]
    elif n == y.rank and all(d == e or isinstance(d, Sym) or isinstance(e, Sym) for d, e in zip(x.shape, y.shape, strict=True)):
        return [x, y]
    raise Violation("InvalidModel", f"{node[1].type} does not fit {x.type}: axis is {at}, broadcast {node.attr('broadcast', 0)}")


def plus(x: Tensor, y: Tensor | None) -> Tensor:
    """The sum with `y`, where there is one, broadcast to the shape of `x`. Raises Violation when it does not fit."""
    return x if y is None else x + stretched(y, x.shape)


def wide(x: Tensor) -> Tensor:
    """`x` in f32 when it is a narrower float: composites are computed in f32 and rounded once."""
    return x.cast(F32) if x.dtype in NARROW else x


def back(y: Tensor, x: Tensor) -> Tensor:
    """`y` in the dtype of `x`."""
    return y if y.dtype is x.dtype else y.cast(x.dtype)
