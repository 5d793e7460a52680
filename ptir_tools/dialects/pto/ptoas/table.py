"""What the assembler's ops on tiles are in PTO IR."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ptir_tools.core.declare import OPS
from ptir_tools.core.ir import ONE, OpDef
from ptir_tools.dialects.pto import ops as _ops  # noqa: F401  (declares them)

# Ops whose name in PTO IR is another one. The others are `pto.tile.X` for `pto.tX`.
_NAMES: Mapping[str, str] = {
    "pto.tinsert_fp": "insert.fp",
    "pto.tfillpad_inplace": "fillpad.inplace",
    "pto.tfillpad_expand": "fillpad.expand",
    "pto.tstore_fp": "store.fp",
    "pto.tmov.fp": "mov.fp",
}
# A move, by the locations of its operand and of its result.
MOVES: Mapping[tuple[str | None, str | None], str] = {
    ("Mat", "Left"): "mov.m2l",
    ("Mat", "Right"): "mov.m2r",
    ("Mat", "Bias"): "mov.m2b",
    ("Mat", "Scale"): "mov.m2s",
    ("Mat", "ScaleLeft"): "mov.m2s",
    ("Mat", "ScaleRight"): "mov.m2s",
    ("Acc", "Vec"): "mov.a2v",
    ("Acc", "Mat"): "mov.a2m",
    ("Vec", "Vec"): "mov.v2v",
    ("Vec", "Mat"): "mov.v2m",
}
# What PTO IR has no op for, with the reason.
REFUSED: Mapping[str, str] = {
    "pto.tsync": "it orders devices",
    **dict.fromkeys(
        (
            "pto.build_async_session", "pto.tput_async", "pto.tget_async", "pto.wait_async_event", "pto.test_async_event",
        ),
        "it copies between devices",
    ),
    "pto.tsort32": "it writes pairs of values and indices into one tile",
    "pto.tscatter": "it scatters by flat indices",
    "pto.tmrgsort": "it merges pairs of values and indices in one tile",
}  # fmt: skip
# Flags and barriers. They are left out, because ops are read as synchronous: a run does them in the order of the text.
ORDER = frozenset(
    {
        "pto.set_flag", "pto.wait_flag", "pto.set_flag_dyn", "pto.wait_flag_dyn", "pto.record_event", "pto.wait_event",
        "pto.barrier", "pto.sync.set", "pto.sync.wait", "pto.set_ffts", "pto.get_buf", "pto.rls_buf", "pto.eventid_array_set",
        "pto.auto_sync_tail_hint",
    }
)  # fmt: skip
EVENT_ARRAYS = frozenset({"pto.declare_eventid_array", "pto.eventid_array_get"})
# Numbers of the core that runs: parameters of the function in PTO IR.
CORES: Mapping[str, str] = {
    "pto.get_block_idx": "block_idx",
    "pto.get_block_num": "block_num",
    "pto.get_subblock_idx": "subblock_idx",
    "pto.get_subblock_num": "subblock_num",
}


def tile_op(name: str) -> OpDef | None:
    """The op of PTO IR that an op of the assembler is, by name; None when there is none."""
    short = _NAMES.get(name) or name.removeprefix("pto.t")
    return OPS.get(f"pto.tile.{short}") if name.startswith("pto.t") else None


# Ops of PTO IR without a form in the assembler's text, or with another meaning there: pairs in one tile, flat indices, masks.
UNWRITTEN = frozenset(map("pto.tile.{}".format, (
    "pow", "pows", "subrelu", "muladddst", "fusedmuladd", "fusedmuladdrelu", "adddeqrelu", "partargmax", "partargmin", "sort32",
    "mrgsort", "sels", "scatter", "prefetch",
)))  # fmt: skip
ATOMICS: Mapping[str, str] = {"atomic_add": "AtomicAdd", "atomic_max": "AtomicMax", "atomic_min": "AtomicMin"}
_ATOMIC_TEXT = {ours: theirs for theirs, ours in ATOMICS.items()}
# The attributes of ops: where the assembler has them (before the types, as an operand or not, or behind `outs`), and their text.
ATTRIBUTES: Mapping[str, tuple[str, Callable[[object], str]]] = {
    "maskPattern": ("before", lambda x: f"maskPattern = #pto.mask_pattern<{x}>" if x else ""),
    "cmpMode": ("inside", lambda x: f"cmpMode = #pto<cmp {str(x).lower()}>"),
    "rmode": ("inside", lambda x: f"rmode = #pto<round_mode {str(x).removeprefix('CAST_')}>"),
    "descending": ("inside", lambda x: "descending = true" if x else ""),
    "upper": ("inside", lambda x: "upperOrLower = 1 : i32" if x else ""),
    "relu": ("behind", lambda x: "reluPreMode = #pto<relu_pre_mode normal_relu>" if x else ""),
    "atomic": ("behind", lambda x: "" if x == "AtomicNone" else f"atomicType = #pto<atomic_type {_ATOMIC_TEXT[str(x)]}>"),
    "isBinary": ("inside", lambda x: f"isBinary = {str(bool(x)).lower()}"),
}
_WRITTEN = {short: name for name, short in _NAMES.items()} | dict.fromkeys(MOVES.values(), "pto.tmov")
_WRITTEN["extract.vec"] = "pto.textract"

# The dialect 0.1: which ops have a type behind each operand, which have scratch, and the words of comparisons.
OLD_EACH = frozenset(map("pto.t{}".format, (
    "gatherb", "lrelu", "max", "maxs", "min", "mins", "mov.fp", "mul", "or", "ors", "partadd", "partmax", "partmin", "prelu",
    "rem", "rems", "sel", "shl", "shr",
)))  # fmt: skip
OLD_SCRATCH = frozenset({"pto.ttrans", "pto.tcolsum", "pto.trowmin"})
_OLD_WORDS = {
    "eq": "equal", "ne": "not_equal", "lt": "less_than", "le": "less_equal", "gt": "greater_than", "ge": "greater_equal",
}  # fmt: skip


def old_text(attributes: str) -> str:
    """Attributes as the dialect 0.1 spells them."""
    for new, old in _OLD_WORDS.items():
        attributes = attributes.replace(f"<cmp {new}>", f"<cmp {old}>")
    return attributes


def written_name(d: OpDef) -> str | None:
    """The name of an op in the assembler's text; None without a form there."""
    short = d.short.removeprefix("tile.")
    return None if d.name in UNWRITTEN else _WRITTEN.get(short, f"pto.t{short}")


def operand_count(d: OpDef) -> int:
    """How many operands an op has of its own; what the assembler gives beyond is scratch memory."""
    return sum(g.kind == ONE for g in d.groups if g.name not in ("valid", "wait"))
