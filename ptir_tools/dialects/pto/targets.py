"""What the targets allow, as data: element types per op, locations, layouts, alignment, capacities."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.records import dataclass
from ptir_tools.core.source import Span
from ptir_tools.dialects.pto import TARGET
from ptir_tools.dialects.pto.names import inner


@dataclass(slots=True, frozen=True, eq=False)
class Costs:
    """How many cycles an op takes in its pipe: those to `start`, and then bytes, or products, at a rate.

    The numbers are round ones, to compare schedules with; none was measured. `start` and `bytes` (per cycle) are by pipe. The
    matrix unit does `products` per cycle of elements of so many bytes, in whole boxes of 16 x 16 x 32 bytes. Any other op goes
    over the bytes of its largest tile `passes` times, once where it is not named.
    """

    start: dict[str, int]
    bytes: dict[str, int]
    products: dict[int, int]
    passes: dict[str, int]


@dataclass(slots=True, frozen=True, eq=False)
class Target:
    """One target. `costs` are its times.

    `capacity` is bytes per location; `dtypes` maps an op's short name (without `tile.`) to the element types it
    takes there, spelled as PTO does; `products` are the (A, B) element types of matmul. `scratch` are start and size of the bytes
    of Vec that some ops use for themselves (`scratches`). A tile may have them where no such op runs while it is live."""

    name: str
    capacity: dict[str, int]
    layouts: dict[str, tuple[str, ...]]  # per location, the default first
    dtypes: dict[str, frozenset[str]]
    products: frozenset[tuple[str, str]]
    stores: tuple[str, ...]  # locations that a store may read
    costs: Costs
    barriers: tuple[str, ...] = ()  # pipes whose ops need a barrier between two that depend on each other
    scratch: tuple[int, int] | None = None

    def summary(self) -> str:
        """What it has of each location."""
        return ", ".join(f"{location} {n} bytes" for location, n in self.capacity.items())

    def details(self) -> Iterator[str]:
        """Lines: locations with their layouts, products, element types per op."""
        for location, layouts in self.layouts.items():
            size = self.capacity.get(location)
            yield f"{location:8} {f'{size} bytes, ' if size else ''}layouts {', '.join(layouts)}"
        yield f"products {', '.join(f'{a} x {b}' for a, b in sorted(self.products))}"
        for op, dtypes in self.dtypes.items():
            yield f"{op:20} {' '.join(sorted(dtypes))}"


ALIGNMENT = 32  # bytes of an ND row and a DN column, and of every tile's address
MATRIX_MAX = 4095  # m, k and n of a matmul

_COMMON = "i16 i32 f16 f32"
_WIDE = _COMMON + " i8 u8 u16 u32 bf16"
_MEMORY = "i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32"
_SMALL = "i8 i16 i32 u8 u16 u32 f16 bf16 f32"
_FP8 = " f8e4m3fn f8e5m2"

# Ops, their element types on a3, and what a5 has besides.
_DTYPES: tuple[tuple[str, str, str], ...] = (
    (
        "add sub mul addc subc addsc subsc axpy muladddst adds subs muls divs maxs mins expands",
        _COMMON,
        _WIDE,
    ),
    ("partadd partmul partmax partmin partargmax partargmin", _COMMON, _WIDE),
    ("max min", _COMMON, ""),
    ("div", "f16 f32", "i16 i32"),
    ("rem rems", "i32 f32", _COMMON),
    ("fmod fmods pow pows exp sqrt rsqrt abs log recip prelu lrelu subrelu fusedmuladd fusedmuladdrelu", "f16 f32", ""),
    ("neg relu", _COMMON, ""),
    ("and or xor ands ors xors", "i8 i16", "i32 u8 u16 u32"),
    ("not", "i16", "i8 i32 u8 u16 u32"),
    ("shl shr shls shrs", "i8 i16 i32", "u8 u16 u32"),
    ("cmp", "f16 f32 i32", _WIDE),
    ("cmps", "f16 f32 i16 i32", _WIDE),
    ("sel sels", "i16 i32 u16 u32 f16 bf16 f32", "i8 u8"),
    ("cvt reshape", _MEMORY, _FP8),
    ("fillpad fillpad.inplace fillpad.expand concat trans rowexpand colexpand", _SMALL, ""),
    ("rowsum rowmax rowmin rowprod rowargmax rowargmin colargmax colargmin", "f16 f32", ""),
    ("adddeqrelu", "i32", ""),
    ("tri", _COMMON, "i8 u8 u16 u32 bf16"),
    ("print", _SMALL, ""),
    ("colsum colmax colmin colprod", _COMMON, _WIDE),
    ("rowexpandadd rowexpandsub rowexpandmul rowexpanddiv rowexpandmax rowexpandmin rowexpandexpdif", "f16 f32", ""),
    ("colexpandadd colexpandsub colexpandmul colexpanddiv colexpandmax colexpandmin colexpandexpdif", "f16 f32", ""),
    ("ci gather scatter", "i16 i32 u16 u32 f16 f32", "bf16"),
    ("gatherb", _SMALL, ""),
    ("sort32 mrgsort", "f16 f32", ""),
    ("load prefetch", _MEMORY, _FP8),
    ("store", _MEMORY, _FP8),
    ("mov.v2v", _SMALL, _FP8),
    ("extract mov.m2l mov.m2r", "i8 f16 bf16 f32", _FP8),
    ("mov.m2b", "i32 f16 f32", "bf16"),
    ("mov.m2s", "u64", "f32 u8"),
    ("mov.a2v mov.a2m mov.fp store.fp insert.fp", "i32 f32", ""),
    ("mov.v2m", "", _SMALL),
    ("insert", _MEMORY, _FP8),
)


def _dtypes(wide: bool) -> dict[str, frozenset[str]]:
    return {op: frozenset((base + " " + more if wide else base).split()) for ops, base, more in _DTYPES for op in ops.split()}


def _layouts(left: str) -> dict[str, tuple[str, ...]]:
    vec = ("ND", "DN", "Nz")
    return {
        "Vec": vec,
        "Mat": ("Nz", "Zn", "ND"),
        "Left": (left,),
        "Right": ("Zn",),
        "Acc": ("Nz",),
        "Bias": ("ND",),
        "Scale": ("ND",),
        "ScaleLeft": ("Zz",),
        "ScaleRight": ("Nn",),
    }


_PRODUCTS = frozenset({("i8", "i8"), ("f16", "f16"), ("f32", "f32"), ("bf16", "bf16")})
_FP8_PRODUCTS = frozenset((a, b) for a in _FP8.split() for b in _FP8.split())
_KIB = 1024

# How often an op goes over its elements, where not once.
_PASSES: tuple[tuple[str, int], ...] = (
    ("reshape print", 0),
    ("sqrt rsqrt recip div divs rem rems fmod fmods exp log sel sels cvt trans", 2),
    ("rowexpandexpdif colexpandexpdif rowexpanddiv colexpanddiv", 2),
    ("rowsum rowmax rowmin rowprod rowargmax rowargmin", 2),
    ("pow pows gatherb concat", 4),
    ("gather scatter sort32 mrgsort", 8),
)
_RATES = {"MTE2": 64, "MTE3": 64, "MTE1": 256, "FIX": 128, "V": 256}


def _costs(rates: dict[str, int], products: dict[int, int]) -> Costs:
    start = {"S": 8, "V": 16, "M": 32, "MTE1": 32, "MTE2": 256, "MTE3": 256, "FIX": 64}
    passes = {f"tile.{op}": n for ops, n in _PASSES for op in ops.split()}
    return Costs(start, {"S": 8} | rates, products, passes)


# Where sources differ, the smaller number: the vector buffer of a5 is 248 KiB to its planner, 256 KiB in the header.
A3 = Target(
    "a3",
    {
        "Vec": 192 * _KIB,
        "Mat": 512 * _KIB,
        "Left": 64 * _KIB,
        "Right": 64 * _KIB,
        "Acc": 128 * _KIB,
        "Bias": 1 * _KIB,
        "Scale": 2 * _KIB,
        "ScaleLeft": 0,
        "ScaleRight": 0,
    },
    _layouts("Zz"),
    _dtypes(wide=False),
    _PRODUCTS,
    ("Vec", "Mat", "Acc"),
    _costs(_RATES, {1: 8192, 2: 4096, 4: 1024}),
    ("V",),
    (184 * _KIB, 8 * _KIB),
)
A5 = Target(
    "a5",
    {
        "Vec": 248 * _KIB,
        "Mat": 512 * _KIB,
        "Left": 64 * _KIB,
        "Right": 64 * _KIB,
        "Acc": 256 * _KIB,
        "Bias": 4 * _KIB,
        "Scale": 4 * _KIB,
        "ScaleLeft": 4 * _KIB,
        "ScaleRight": 4 * _KIB,
    },
    _layouts("Nz"),
    _dtypes(wide=True),
    _PRODUCTS | _FP8_PRODUCTS,
    ("Vec", "Acc"),
    _costs(_RATES | {"MTE1": 512, "FIX": 256}, {1: 8192, 2: 4096, 4: 1024}),
)
TARGETS = {"a3": A3, "a5": A5}
_ALIASES = {"a2": "a3", "a2a3": "a3"}
_ATTRIBUTES = ("pto.target", "pto.target_arch", "pto.device-spec", "pto.device_spec")


def scratches(short: str) -> bool:
    """Whether the op uses the target's scratch: the row by row forms of two tiles."""
    return short.startswith("tile.rowexpand") and short != "tile.rowexpand"


def find(name: str) -> Target | None:
    """The target called `name` (`a2` and `a2a3` mean a3; device names are understood), or None."""
    key = name.lower()
    if key.startswith("ascend"):
        key = "a5" if key.startswith("ascend950") else "a3" if key.startswith("ascend910") else key
    return TARGETS.get(_ALIASES.get(key, key))


def declared(program: Program) -> str | None:
    """The name of the target that the module states, or None."""
    return next((inner(str(program.attrs[k])) for k in _ATTRIBUTES if program.attrs.get(k) is not None), None)


def retarget(program: Program, name: str) -> None:
    """Let `program` state the target `name`, in place of its own. Raises UsageError for one that there is not."""
    if find(name) is None:
        raise UsageError(f"`{name}` is not a target", help=f"the targets are {', '.join(TARGETS)}")
    for key in _ATTRIBUTES:
        program.attrs.pop(key, None)
    program.attrs[_ATTRIBUTES[0]] = f"#pto.target<{name}>"


def target_of(program: Program, options: Options, diagnostics: Diagnostics | None = None) -> Target | None:
    """The target to check against: the option TARGET, over the module's own with a warning; None when neither says one.

    A name that is not known is reported as `UnknownTarget`.
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
    own_target = find(own) if own is not None else None
    if (
        diagnostics is not None
        and found is not None
        and options[TARGET] is not None
        and own is not None
        and own_target is not found
    ):
        diagnostics.warning("TargetOverridden", f"the module's target is {own}, checked for {found.name}")
    return found
