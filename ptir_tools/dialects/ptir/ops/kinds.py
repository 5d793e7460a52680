"""The annotations of attributes: the closed set of kinds that readers and writers support. See the docstring of the package."""

from collections.abc import Callable

from ptir_tools.core.evaluate import Context as Context
from ptir_tools.core.evaluate import Data
from ptir_tools.core.types import Dim, TensorType, Type
from ptir_tools.core.types import Shape as Shape

# What bodies are given next to operands and attributes: the declared result type, and a region as a function of arrays.
Result = TensorType
AnyResult = Type
Region = Callable[..., tuple[Data, ...]]

# The new shape of a reshape: extents, of which one may be -1 (inferred).
NewShape = tuple[Dim, ...]

# Attributes of a custom call: ((key, (kind, value)), …), sorted by key; `kind` is one of ATTR_KINDS.
AttrValue = bool | int | float | str | tuple[bool, ...] | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]
Attrs = tuple[tuple[str, tuple[str, AttrValue]], ...]
ATTR_KINDS: dict[str, type] = {
    "I64": int, "F64": float, "Bool": bool, "String": str,
    "I64Array": int, "F64Array": float, "BoolArray": bool, "StringArray": str,
}  # fmt: skip
SCALAR_KINDS = {t: kind for kind, t in ATTR_KINDS.items() if not kind.endswith("Array")}

# The lists of axes of a dot_general.
DIMENSION_NUMBERS = ("batch_lhs", "batch_rhs", "contract_lhs", "contract_rhs")

# Enumerations are strings; the annotation is one of these names, and the table says which strings it has.
ScatterKind = str
WindowKind = str
SegmentKind = str
UpdateKind = str
ENUMERATIONS: dict[str, tuple[str, ...]] = {
    "ScatterKind": ("add", "max", "min", "replace"),
    "WindowKind": ("sum", "max", "min"),
    "SegmentKind": ("sum", "max"),
    "UpdateKind": ("replace", "add", "mul", "max", "min", "and", "or", "xor"),
}
