"""Which tests judge which sources."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True, slots=True)
class Part:
    """Sources, as globs from the root, and the test files that judge them in under a minute, the quickest first."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]

    def files(self) -> list[Path]:
        """The sources that there are, without those that a part before it has."""
        return sorted(path for path, part in _judged().items() if part is self)


def _part(sources: str, tests: str) -> Part:
    return Part(tuple(sources.split()), tuple(tests.split()))


_D = "ptir_tools/dialects"
_C = "ptir_tools/native"
ROOMS: dict[str, tuple[Part, ...]] = {
    "rules": (
        _part(f"{_D}/ptir/rewrites/*.py", "rules_families rules folds ptir_region_rules rules_operands simplify rules_docs"
              " passes_contractions translation_raised rules_golden"),
        _part(f"{_D}/mind/rewrites.py passes/mind/*.py", "mind_canonicalize simplify mind_autodiff"),
        _part(f"{_D}/tiny/rewrites.py {_D}/pto/rewrites.py passes/tiny/*.py", "simplify pto_passes"),
        _part("ptir_tools/rewrite/*.py passes/*.py passes/ptir/*.py",
              "rewriter folds greedy passes passes_cse rules passes_ptir rule_files param_fold timing greedy_driver"
              " rewriting"),
    ),
    "typerules": (
        _part(f"{_D}/ptir/ops/*.py", "ptir_ops_rules ptir_ops_shape ptir_ops_reduce ptir_ops_elementwise ptir_ops_control"
              " ptir_ops_custom ptir_ops_laws folds simplify"),
        _part(f"{_D}/mind/ops/*.py", "mind_ops mind_text mind_canonicalize simplify"),
        _part(f"{_D}/tiny/ops/*.py", "tiny_ops tiny_codes simplify bounds"),
        _part(f"{_D}/pto/ops/*.py", "pto_ops pto_rules pto_codes pto_run simplify pto_passes pto_generate"),
    ),
    "checks": (
        _part(f"ptir_tools/core/verify.py ptir_tools/core/definers.py ptir_tools/core/symbols.py {_D}/ptir/check.py",
              "core ptir_codes symbols_kept dead_errors translation_symbols ptir_region_rules"),
        _part(f"ptir_tools/core/expressions.py {_D}/tiny/symbols.py {_D}/tiny/legalize.py {_D}/tiny/piecewise.py"
              f" {_D}/tiny/check.py",
              "tiny_codes tiny_ops tiny_legalize tiny_symbols"),
        _part(f"{_D}/pto/memory/capacity.py {_D}/pto/check.py {_D}/pto/constraints.py {_D}/pto/legality.py {_D}/pto/rules.py"
              f" {_D}/pto/affine.py {_D}/pto/order/flags.py",
              "pto_codes pto_constraints pto_rules pto_passes pto_order pto_targets pto_facts pto_event_ids"),
        _part("ptir_tools/core/errors.py ptir_tools/engines/bounds.py ptir_tools/engines/compare.py",
              "compare detection bounds cli_nonfinite cli_checking"),
        _part("ptir_tools/core/arrayfiles.py ptir_tools/engines/inputs.py", "core_arrays engines_inputs cli_inputs"),
    ),
    "plan": (
        _part("ptir_tools/plan/mesh.py", "mesh"),
        _part("ptir_tools/plan/*.py", "plan plan_views order exact plan_files engines_memory native_loops"),
    ),
    "hazards": (
        _part(f"{_D}/pto/order/hazards.py {_D}/pto/order/traces.py {_D}/pto/memory/windows.py {_D}/pto/run/machine.py"
              f" {_D}/pto/order/decisions.py {_D}/pto/memory/places.py {_D}/pto/order/signals.py {_D}/pto/carried.py",
              "pto_hazards pto_order pto_passes pto_assembly pto_run pto_machine pto_timeline"),
        _part(f"{_D}/pto/order/dependences.py", "pto_dependences pto_insert_events pto_passes"),
        _part("passes/pto/*.py", "pto_pass_laws pto_passes pto_bufferize pto_pipeline pto_event_ids pto_insert_events"),
    ),
    "translators": (
        _part("ptir_tools/convert/ptir_to_mind/*.py ptir_tools/convert/mind_to_ptir/*.py",
              "mind_convert mind_back translation_mind translation_raised"),
        _part("ptir_tools/convert/ptir_to_tiny/*.py",
              "tiny_from_ptir tiny_convert translation_tiny translation_symbols translation_raised translation_functions"),
        _part("ptir_tools/convert/tiny_to_ptir/*.py",
              "tiny_convert translation_tiny translation_views translation_symbols translation_raised"),
        _part("ptir_tools/convert/ptir_to_pto/*.py",
              "translation_tiles pto_convert pto_kernels translation_back translation_between"),
    ),
    "readers": (
        _part(f"{_D}/ptir/text/*.py {_D}/jsonc.py",
              "ptir_text ptir_literals ptir_fmt ptir_roundtrip ptir_extensions tuples readers"),
        _part(f"{_D}/ptir/gptrs/*.py", "ptir_dump ptir_json ptir_jsonc ptir_quirks ptir_hash ptir_extensions"),
        _part(f"{_D}/mind/text/*.py {_D}/mind/surface.py", "mind_text mind_lines mind_surface mind_mlir readers"),
        _part(f"{_D}/pto/text/*.py", "pto_text pto_lines pto_assembly pto_cpp readers"),
        _part(f"{_D}/tiny/text/*.py", "tiny_json tiny_codes readers"),
    ),
    "kernels": (
        _part(" ".join(f"{_C}/{n}" for n in ("gemm.inl", "igemm.inl", "bgemm.inl", "kernels.c", "narrow.h")),
              "native native_narrow"),
        _part(" ".join(f"{_C}/{n}" for n in ("rows.inl", "functions.inl", "quick.inl", "chain.inl", "turn.h")),
              "native_tiles native"),
        _part(f"{_C}/attention.inl", "native_attention native"),
        _part(f"{_C}/gemv.inl", "native_vectors native"),
        _part(f"{_C}/windows.inl {_C}/moves.inl", "native_windows native"),
        _part(f"{_C}/checks.c {_C}/phases.c {_C}/pool.c {_C}/module.c", "native_edges native"),
        _part(f"{_C}/placement.c {_C}/fit.c", "plan exact"),
    ),
}  # fmt: skip


@cache
def _judged() -> dict[Path, Part]:
    """The sources, each with the first part that has it."""
    found: dict[Path, Part] = {}
    for part in (part for parts in ROOMS.values() for part in parts):
        for path in (p for glob in part.sources for p in ROOT.glob(glob)):
            if path.name != "__init__.py" or path.stat().st_size > 400:
                found.setdefault(path, part)
    return found
