"""What the assembler's ops on tiles are in PTO IR."""

from __future__ import annotations

from collections.abc import Mapping

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
    **dict.fromkeys(
        (
            "pto.tpush", "pto.tpop", "pto.tfree", "pto.tpush_to_aic", "pto.tpush_to_aiv", "pto.tpop_from_aic",
            "pto.tpop_from_aiv", "pto.tfree_from_aic", "pto.tfree_from_aiv", "pto.reserve_buffer",
            "pto.import_reserved_buffer", "pto.declare_tile", "pto.aic_initialize_pipe", "pto.aiv_initialize_pipe",
            "pto.initialize_l2l_pipe", "pto.initialize_l2g2l_pipe", "pto.set_ffts", "pto.sync.set", "pto.sync.wait", "pto.tsync",
        ),
        "two cores share it, and a program of PTO IR runs on one",
    ),
    **dict.fromkeys(
        (
            "pto.build_async_session", "pto.tput_async", "pto.tget_async", "pto.wait_async_event", "pto.test_async_event",
        ),
        "it copies between devices",
    ),
    "pto.tsort32": "it writes pairs of values and indices into one tile",
    "pto.tmrgsort": "it merges pairs of values and indices in one tile",
}  # fmt: skip
# Flags and barriers. They are left out, because ops are read as synchronous: a run does them in the order of the text.
ORDER = frozenset(
    {
        "pto.set_flag", "pto.wait_flag", "pto.set_flag_dyn", "pto.wait_flag_dyn", "pto.record_event", "pto.wait_event",
        "pto.barrier", "pto.get_buf", "pto.rls_buf", "pto.eventid_array_set", "pto.auto_sync_tail_hint",
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


def operand_count(d: OpDef) -> int:
    """How many operands an op has of its own; what the assembler gives beyond is scratch memory."""
    return sum(g.kind == ONE for g in d.groups if g.name not in ("valid", "wait"))
