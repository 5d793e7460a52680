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
    isa: str = ""  # the instruction set of the kernels, if not the machine's own: one of AMX, whose tiles are made in C

    def files(self) -> list[Path]:
        """The sources that there are, without those that a part before it has."""
        return sorted(path for path, part in _judged().items() if part is self)


def _part(sources: str, tests: str, isa: str = "") -> Part:
    return Part(tuple(sources.split()), tuple(tests.split()), isa)


def _in(folder: str, names: str) -> str:
    return " ".join(f"{folder}/{name}" for name in names.split())


_D = "ptir_tools/dialects"
_C = "ptir_tools/native"
_E = "ptir_tools/engines"
_B = "ptir_tools/bridges"
_T = "ptir_tools/tools"
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
        _part(_in(_C, "gemm.inl ending.inl weights.inl patches.inl igemm.inl quantizing.inl bgemm.inl kernels.c narrow.h isa.inl"
                      " common.h"),
              "native_sizes native native_narrow native_tiles"),
        _part(_in(_C, "rows.inl functions.inl quick.inl chain.inl chain.h turn.h magnitudes.h"),
              "native_sizes native_tiles native"),
        _part(_in(_C, "attention.inl"), "native_sizes native_attention native"),
        _part(_in(_C, "gemv.inl"), "native_vectors native_sizes native"),
        _part(_in(_C, "windows.inl moves.inl"), "native_windows native"),
        _part(_in(_C, "checks.c phases.c phases.h pool.c pool.h module.c kernels.h isa.c isa.h isa_*.c"),
              "native_edges native native_loops"),
        _part(_in(_C, "placement.c placement.h fit.c"), "plan exact"),
    ),
    "tiles": (
        _part(_in(_C, "split.inl tiles.inl shapes.inl"), "native_sizes", "amxf32"),
        _part(_in(_C, "pair_attention.inl"), "native_sizes native_attention", "amxf32"),
    ),
    "engines": (
        _part(_in(_E, "native/attention.py native/products.py native/convolution.py native/bands.py native/byte_products.py"
                      " native/vectors.py native/windows.py"),
              "native_sizes native_attention native_bands native_windows native_vectors native_tiles native"),
        _part(_in(_E, "native/*.py"), "native_sizes native_tiles native native_loops native_edges threads engines_constants"),
        _part(_in(_E, "numpy/*.py"),
              "engines_ops engines_memory native_loops engines_run engines_constants engines_threads oracle_special"),
        _part(_in(_E, "xla.py"), "oracle_jax_function oracle_jax_engine"),
        _part(_in(_E, "*.py"), "engines_compiled engines_run engines engines_memory trace_sink cli_dump timing plan_files"),
    ),
    "bridges": (
        _part(_in(f"{_B}/onnx", "exporter.py emitter.py format.py idioms.py lowerings.py"), "onnx_out"),
        _part(_in(f"{_B}/onnx", "torch_export.py"), "oracle_torch_ops oracle_torch_arrays"),
        _part(_in(f"{_B}/onnx", "ops/trees.py ops/contrib.py"), "onnx_trees onnx_contrib"),
        _part(_in(f"{_B}/onnx", "*.py ops/*.py"), "onnx_numbers onnx onnx_attributes onnx_contrib onnx_out"),
        _part(_in(f"{_B}/stablehlo", "*.py ops/*.py"), "stablehlo oracle_jax_stablehlo oracle_jax_bytecode"),
        _part(_in(_B, "xla/*.py jax.py"), "oracle_jax_function mesh"),
        _part(_in(_B, "*.py"), "bridge_extents stablehlo onnx"),
    ),
    "core": (
        _part(_in("ptir_tools/core", "arrays.py decimals.py dtypes.py costs.py"), "core_arrays decimals core ptir_literals"),
        _part(_in("ptir_tools/core", "diagnostics.py render.py collector.py source.py violations.py spelling.py places.py"),
              "render diagnostics core wrong_tokens cli_reports"),
        _part(_in("ptir_tools/core", "files.py limits.py"), "cli_output cli_inputs hostile_arrays trust many_regions"),
        _part(_in("ptir_tools/core", "*.py"), "core records many_regions dead_errors ptir_region_rules generate"),
        _part("ptir_tools/*.py", "api plugins rewriting"),
    ),
    "convert": (
        _part(_in("ptir_tools/convert", "*.py"), "convert_registry translation_between translation_functions translation_tiny"),
    ),
    "dialects": (
        _part(_in(f"{_D}/ptir", "kernels/*.py kernels/*/*.py"), "recognize examples"),
        _part(_in(f"{_D}/ptir", "builder/*.py"), "ptir_build api"),
        _part(_in(f"{_D}/ptir", "networks/*.py"), "networks"),
        _part(_in(f"{_D}/ptir", "*.py"), "ptir_codes ptir_generate generate graph folds"),
        _part(_in(f"{_D}/mind", "mlir/*.py"), "mind_mlir oracle_iree_mind"),
        _part(_in(f"{_D}/mind", "*.py"), "mind_text mind_ops mind_surface generate graph"),
        _part(_in(f"{_D}/tiny", "*.py"), "tiny_codes tiny_json tiny_ops tiny_symbols generate graph"),
        _part(_in(f"{_D}/pto", "generate/*.py"), "pto_generate"),
        _part(_in(f"{_D}/pto", "run/*.py order/*.py"), "pto_timeline pto_run pto_evolution pto_order pto_hazards"),
        _part(_in(f"{_D}/pto", "memory/*.py *.py"),
              "pto_codes pto_facts pto_targets pto_bounds pto_valid pto_machine pto_passes"),
        _part(_in(_D, "*.py"), "sniff foreign readers"),
    ),
    "cli": (
        _part(_in("ptir_tools/cli", "run.py checking.py session.py"), "cli_checking cli_inputs cli_nonfinite cli_dump golden"),
        _part(_in("ptir_tools/cli", "opt.py canonicalize.py fmt.py translate.py verify.py bisect.py reduce.py"),
              "cli_splitting cli_fmt cli_pipelines cli_reduce golden"),
        _part(_in("ptir_tools/cli", "*.py"),
              "command_lines cli_numbers cli_output cli_reports cli_codes man golden"),
    ),
    "tools": (
        _part(_in(_T, "language.py server.py textmate.py"), "language editors"),
        _part(_in(_T, "graph/*.py"), "graph"),
        _part(_in(_T, "fuzz.py isolation.py observers.py"), "fuzz cli_nonfinite"),
        _part(_in(_T, "reduce.py shrinking.py splitting.py cases.py reproduce.py debug.py"),
              "cli_reduce cli_splitting cli_pipelines"),
        _part(_in(_T, "bench.py profile.py stats.py"), "timing golden"),
        _part(_in(_T, "*.py"), "conform compare cli_checking cli_fmt translate_comments man golden"),
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
