"""What the targets allow, as data: element types per op, locations, layouts, alignment, capacities."""

from __future__ import annotations

import re

from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.records import dataclass
from ptir_tools.core.source import Span
from ptir_tools.dialects.pto import TARGET
from ptir_tools.dialects.pto.costs import A3_COSTS, A5_COSTS, Costs
from ptir_tools.dialects.pto.names import inner


@dataclass(slots=True, frozen=True, eq=False)
class Target:
    """One target. `costs` are its times.

    `capacity` is bytes per location; `products` are the (A, B) element types of matmul. `scratch` are start and size of the bytes
    of Vec that some ops use for themselves (`Facts.scratch`). A tile may have them where no such op runs while it is live."""

    name: str
    capacity: dict[str, int]
    layouts: dict[str, tuple[str, ...]]  # per location, the default first
    products: frozenset[tuple[str, str]]
    compares: dict[str, tuple[str, ...]]  # by element type, the modes of comparisons where some are missing
    stores: tuple[str, ...]  # locations that a store may read
    from_acc: tuple[str, ...]  # locations to which an op moves a tile of Acc
    acc: dict[str, dict[str, str]]  # by what takes a tile out of Acc, and its elements: those that they may become
    conversions: dict[str, str]  # by element type, those that `cvt` makes of it
    costs: Costs
    barriers: tuple[str, ...] = ()  # pipes whose ops need a barrier between two that depend on each other
    scratch: tuple[int, int] | None = None


ALIGNMENT = 32  # bytes of an ND row and a DN column, and of every tile's address
_FP8 = ("f8e4m3fn", "f8e5m2")


def _layouts(left: str) -> dict[str, tuple[str, ...]]:
    several = {"Vec": ("ND", "DN", "Nz"), "Mat": ("Nz", "Zn", "ND"), "Left": (left,), "Right": ("Zn",), "Acc": ("Nz",)}
    return several | {"Bias": ("ND",), "Scale": ("ND",), "ScaleLeft": ("Zz",), "ScaleRight": ("Nn",)}


def _capacity(**kib: int) -> dict[str, int]:
    """Bytes per location."""
    return {location: n * _KIB for location, n in kib.items()}


_PRODUCTS = frozenset({("i8", "i8"), ("f16", "f16"), ("f32", "f32"), ("bf16", "bf16")})
_FP8_PRODUCTS = frozenset((a, b) for a in _FP8 for b in _FP8)
_KIB = 1024

_STORED = dict.fromkeys(("f32", "i32"), "i32 f32 f16 bf16")
_SCALED = {"f32": "i8 u8 f16 bf16 f8e4m3fn f32", "i32": "i8 u8 f16 bf16"}

# Where sources differ, the smaller number: the vector buffer of a5 is 248 KiB to its planner, 256 KiB in the header.
A3 = Target(
    "a3",
    _capacity(Vec=192, Mat=512, Left=64, Right=64, Acc=128, Bias=1, Scale=2, ScaleLeft=0, ScaleRight=0),
    _layouts("Zz"),
    _PRODUCTS,
    {"i32": ("EQ",)},
    ("Vec", "Mat", "Acc"),
    ("Mat",),
    {
        "move": {"f32": "f16 bf16", "i32": ""},
        "move by factors": {"f32": "i8", "i32": "i8 u8 f16 i16"},
        "store": _STORED,
        "store by factors": {"f32": "i8 u8", "i32": "i8 u8 f16"},
    },
    {
        "f32": "f32 f16 bf16 i16 i32 i64",
        "f16": "f32 i8 u8 i16 i32",
        "bf16": "f32 i32",
        "i64": "f32 i32",
        "i32": "f32 f16 i16 i64",
        "i16": "f32 f16",
        **dict.fromkeys(("i8", "u8"), "f16"),
    },
    A3_COSTS,
    ("V",),
    (184 * _KIB, 8 * _KIB),
)
A5 = Target(
    "a5",
    _capacity(Vec=248, Mat=512, Left=64, Right=64, Acc=256, Bias=4, Scale=4, ScaleLeft=4, ScaleRight=4),
    _layouts("Nz"),
    _PRODUCTS | _FP8_PRODUCTS,
    {},
    ("Vec", "Acc"),
    ("Vec", "Mat"),
    {
        "move": {"f32": "f16 bf16 f32", "i32": "i32"},
        "move by factors": _SCALED,
        "store": _STORED,
        "store by factors": _SCALED,
    },
    {
        "f32": "f32 f16 bf16 f8e4m3fn f8e5m2 i16 i32 i64",
        "f16": "f32 i8 u8 i16 i32",
        "bf16": "f32 f16 i32",
        **dict.fromkeys(_FP8, "f32"),
        "i64": "f32 i32",
        "i32": "f32 i16 i64 u8 u16",
        "u32": "u8 i16 u16",
        "i16": "f32 f16 i32 u32 u8",
        "i8": "f16 i16 i32",
        "u8": "f16 u16",
    },
    A5_COSTS,
)
TARGETS = {"a3": A3, "a5": A5}
_ALIASES = {"a2": "a3", "a2a3": "a3"}
_ATTRIBUTES = ("pto.target", "pto.target_arch", "pto.device-spec", "pto.device_spec")


def find(name: str) -> Target | None:
    """The target called `name`, or None. `a2` and `a2a3` are a3; device names are accepted."""
    key = name.lower()
    if key.startswith("ascend"):
        key = "a5" if key.startswith("ascend950") else "a3" if key.startswith("ascend910") else key
    return TARGETS.get(_ALIASES.get(key, key))


def declared(program: Program) -> str | None:
    """The name of the target that the module states, or None."""
    return next((inner(str(program.attrs[k])) for k in _ATTRIBUTES if program.attrs.get(k) is not None), None)


def retarget(program: Program, name: str) -> None:
    """Set the target that `program` states. Raises UsageError for an unknown one."""
    if find(name) is None:
        raise UsageError(f"`{name}` is not a target", help=f"the targets are {', '.join(TARGETS)}")
    for key in _ATTRIBUTES:
        program.attrs.pop(key, None)
    program.attrs[_ATTRIBUTES[0]] = f"#pto.target<{name}>"


def target_of(program: Program, options: Options, diagnostics: Diagnostics | None = None) -> Target | None:
    """The target to check against: the option TARGET, or else the one that the module states; None without either. A warning
    is reported when the option overrides the module.

    An unknown name is reported as `UnknownTarget`.
    """
    own = declared(program)
    name = options[TARGET] or own
    if name is None:
        return None
    found = find(name)
    if diagnostics is not None and found is None:
        known = ", ".join(TARGETS)
        stated = re.search(rf"target<\s*({re.escape(name)})\s*>", diagnostics.source.text) if diagnostics.source else None
        at = Span(*stated.span(1)) if stated and options[TARGET] is None else None
        diagnostics.error("UnknownTarget", f"`{name}` is not a target", at, help=f"the targets are {known}")
    overridden = found is not None and own is not None and options[TARGET] is not None and find(own) is not found
    if diagnostics is not None and found is not None and overridden:
        diagnostics.warning("TargetOverridden", f"the module's target is {own}, checked for {found.name}")
    return found
