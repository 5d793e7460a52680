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
        _part(f"{_D}/ptir/rewrites/*.py",
              "rewrite/rules_families rewrite/rules rewrite/folds ptir/region_rules rewrite/rules_operands"
              " passes/simplify rewrite/rules_docs passes/contractions convert/raised rewrite/rules_golden"),
        _part(f"{_D}/mind/rewrites.py passes/mind/*.py",
              "mind/canonicalize passes/simplify mind/autodiff"),
        _part(f"{_D}/tiny/rewrites.py {_D}/pto/rewrites.py passes/tiny/*.py",
              "passes/simplify pto/passes"),
        _part("ptir_tools/rewrite/*.py passes/*.py passes/ptir/*.py",
              "rewrite/rewriter rewrite/folds rewrite/greedy passes/passes passes/cse rewrite/rules passes/ptir"
              " rewrite/rule_files passes/param_fold tools/timing rewrite/greedy_driver rewrite/rewriting"),
    ),
    "typerules": (
        _part(f"{_D}/ptir/ops/needs.py",
              "engines/inputs"),
        _part(f"{_D}/ptir/ops/*.py",
              "ptir/ops_rules ptir/ops_shape ptir/ops_reduce ptir/ops_elementwise ptir/ops_control ptir/ops_custom"
              " ptir/ops_laws rewrite/folds passes/simplify"),
        _part(f"{_D}/mind/ops/*.py",
              "mind/ops mind/text mind/canonicalize passes/simplify"),
        _part(f"{_D}/tiny/ops/*.py",
              "tiny/ops tiny/codes passes/simplify engines/bounds"),
        _part(f"{_D}/pto/ops/*.py",
              "pto/ops pto/rules pto/codes pto/run passes/simplify pto/passes pto/generate"),
    ),
    "checks": (
        _part(f"ptir_tools/core/verify.py ptir_tools/core/definers.py ptir_tools/core/symbols.py {_D}/ptir/check.py",
              "core/core ptir/codes passes/symbols_kept passes/dead_errors convert/symbols ptir/region_rules"),
        _part(f"ptir_tools/core/expressions.py {_D}/tiny/symbols.py {_D}/tiny/legalize.py {_D}/tiny/piecewise.py"
              f" {_D}/tiny/check.py",
              "tiny/codes tiny/ops tiny/legalize tiny/symbols"),
        _part(f"{_D}/pto/memory/capacity.py {_D}/pto/check.py {_D}/pto/constraints.py {_D}/pto/legality.py {_D}/pto/rules.py"
              f" {_D}/pto/affine.py",
              "pto/codes pto/constraints pto/rules pto/passes pto/order pto/targets pto/facts pto/event_ids"),
        _part("ptir_tools/core/errors.py ptir_tools/engines/bounds.py ptir_tools/engines/compare.py",
              "engines/compare engines/detection engines/bounds cli/nonfinite cli/checking"),
        _part("ptir_tools/core/arrayfiles.py ptir_tools/engines/inputs.py",
              "core/arrays engines/inputs cli/inputs"),
    ),
    "plan": (
        _part("ptir_tools/plan/mesh.py",
              "plan/mesh"),
        _part("ptir_tools/plan/*.py",
              "plan/plan plan/views plan/order plan/exact plan/files engines/memory engines/native/loops"),
    ),
    "hazards": (
        _part(f"{_D}/pto/order/hazards.py {_D}/pto/order/traces.py {_D}/pto/memory/windows.py {_D}/pto/run/machine.py"
              f" {_D}/pto/order/decisions.py {_D}/pto/memory/places.py {_D}/pto/order/signals.py {_D}/pto/carried.py",
              "pto/hazards pto/order pto/passes pto/assembly pto/run pto/machine pto/timeline"),
        _part(f"{_D}/pto/order/dependences.py",
              "pto/dependences pto/insert_events pto/passes"),
        _part("passes/pto/*.py",
              "pto/pass_laws pto/passes pto/bufferize pto/pipeline pto/event_ids pto/insert_events"),
    ),
    "translators": (
        _part("ptir_tools/convert/ptir_to_mind/*.py ptir_tools/convert/mind_to_ptir/*.py",
              "convert/mind_to_ptir convert/ptir_to_mind convert/rows_of_mind convert/raised"),
        _part("ptir_tools/convert/ptir_to_tiny/*.py",
              "convert/ptir_to_tiny convert/tiny_to_ptir convert/rows_of_tiny convert/symbols convert/raised"
              " convert/functions"),
        _part("ptir_tools/convert/tiny_to_ptir/*.py",
              "convert/tiny_to_ptir convert/rows_of_tiny convert/views convert/symbols convert/raised"),
        _part("ptir_tools/convert/ptir_to_pto/*.py",
              "convert/ptir_to_pto/tiles convert/ptir_to_pto/convert convert/ptir_to_pto/kernels convert/back"
              " convert/between"),
    ),
    "readers": (
        _part(f"{_D}/ptir/text/*.py {_D}/jsonc.py",
              "ptir/text ptir/literals ptir/fmt ptir/roundtrip ptir/extensions ptir/tuples grammars/readers"),
        _part(f"{_D}/ptir/gptrs/*.py",
              "ptir/dump ptir/json ptir/jsonc ptir/quirks ptir/hash ptir/extensions"),
        _part(f"{_D}/mind/text/*.py {_D}/mind/surface.py",
              "mind/text mind/lines mind/surface mind/mlir grammars/readers"),
        _part(f"{_D}/pto/ptoas/*.py",
              "pto/ptoas"),
        _part(f"{_D}/mind/mic/*.py",
              "mind/mic"),
        _part(f"{_D}/pto/text/*.py {_D}/pto/text/cpp/*.py",
              "pto/text pto/lines pto/assembly pto/cpp grammars/readers"),
        _part(f"{_D}/tiny/text/*.py",
              "tiny/json tiny/codes grammars/readers"),
    ),
    "kernels": (
        _part(_in(_C, "gemm.inl epilogue.inl weights.inl patches.inl igemm.inl quantizing.inl bgemm.inl kernels.c narrow.h"
                      " isa.inl common.h"),
              "engines/native/sizes engines/native/native engines/native/narrow engines/native/tiles"),
        _part(_in(_C, "rows.inl functions.inl quick.inl chain.inl chain.h transpose.h magnitudes.h"),
              "engines/native/sizes engines/native/tiles engines/native/native"),
        _part(_in(_C, "attention.inl"),
              "engines/native/sizes engines/native/attention engines/native/native"),
        _part(_in(_C, "gemv.inl"),
              "engines/native/vectors engines/native/sizes engines/native/native"),
        _part(_in(_C, "windows.inl moves.inl"),
              "engines/native/windows engines/native/native"),
        _part(_in(_C, "checks.c phases.c phases.h pool.c pool.h module.c kernels.h isa.c isa.h isa_*.c"),
              "engines/native/edges engines/native/native engines/native/loops"),
        _part(_in(_C, "placement.c placement.h fit.c"),
              "plan/plan plan/exact"),
    ),
    "tiles": (
        _part(_in(_C, "split.inl tiles.inl shapes.inl"),
              "engines/native/sizes", "amxf32"),
        _part(_in(_C, "pair_attention.inl"),
              "engines/native/sizes engines/native/attention", "amxf32"),
    ),
    "engines": (
        _part(_in(_E, "native/attention.py native/products.py native/convolution.py native/bands.py native/byte_products.py"
                      " native/vectors.py native/windows.py"),
              "engines/native/sizes engines/native/attention engines/native/bands engines/native/windows"
              " engines/native/vectors engines/native/tiles engines/native/native"),
        _part(_in(_E, "native/*.py"),
              "engines/native/sizes engines/native/tiles engines/native/native engines/native/loops"
              " engines/native/edges engines/native/threads engines/constants"),
        _part(_in(_E, "numpy/*.py"),
              "engines/ops engines/memory engines/native/loops engines/run engines/constants engines/threads"
              " engines/special"),
        _part(_in(_E, "xla.py"),
              "bridges/xla/jax_function engines/jax_engine"),
        _part(_in(_E, "*.py"),
              "engines/compiled engines/ranged engines/run engines/engines engines/memory engines/trace_sink cli/dump"
              " tools/timing plan/files"),
    ),
    "bridges": (
        _part(_in(f"{_B}/onnx", "cells.py exporter.py emitter.py format.py idioms.py lowerings.py"),
              "bridges/onnx/export"),
        _part(_in(f"{_B}/onnx", "torch_export.py"),
              "ptir/torch_ops engines/torch_arrays"),
        _part(_in(f"{_B}/onnx", "ops/trees.py ops/contrib.py"),
              "bridges/onnx/trees bridges/onnx/contrib"),
        _part(_in(f"{_B}/onnx", "ops/bounded.py"),
              "bridges/onnx/bounded"),
        _part(_in(f"{_B}/onnx", "*.py ops/*.py"),
              "bridges/onnx/numbers bridges/onnx/import bridges/onnx/attributes bridges/onnx/contrib"
              " bridges/onnx/export"),
        _part(_in(f"{_B}/stablehlo", "ops/spectral.py ops/lapack.py"),
              "bridges/stablehlo/jax_lowerings"),
        _part(_in(f"{_B}/stablehlo", "*.py ops/*.py"),
              "bridges/stablehlo/import bridges/stablehlo/jax_lowerings bridges/stablehlo/jax_bytecode"),
        _part(_in(_B, "c/*.py"),
              "bridges/c/c"),
        _part(_in(_B, "xla/*.py jax.py"),
              "bridges/xla/jax_function plan/mesh"),
        _part(_in(_B, "numpy_trace.py"),
              "bridges/numpy_trace"),
        _part(_in(_B, "*.py"),
              "bridges/extents bridges/stablehlo/import bridges/onnx/import"),
    ),
    "core": (
        _part(_in("ptir_tools/core", "arrays.py decimals.py dtypes.py costs.py"),
              "core/arrays core/decimals core/core ptir/literals"),
        _part(_in("ptir_tools/core", "diagnostics.py render.py collector.py source.py violations.py spelling.py places.py"),
              "core/render core/diagnostics core/core grammars/wrong_tokens cli/reports"),
        _part(_in("ptir_tools/core", "files.py limits.py"),
              "cli/output cli/inputs core/hostile_arrays trust core/many_regions"),
        _part(_in("ptir_tools/core", "*.py"),
              "core/core core/records core/many_regions passes/dead_errors ptir/region_rules tools/generate"),
        _part("ptir_tools/*.py",
              "api plugins rewrite/rewriting"),
    ),
    "convert": (
        _part(_in("ptir_tools/convert", "*.py"),
              "convert/registry convert/between convert/functions convert/rows_of_tiny"),
    ),
    "dialects": (
        _part(_in(f"{_D}/ptir", "kernels/*.py kernels/*/*.py"),
              "ptir/recognize ptir/examples"),
        _part(_in(f"{_D}/ptir", "composites/*.py"),
              "convert/extensions passes/passes ptir/recognize"),
        _part(_in(f"{_D}/ptir", "builder/*.py"),
              "ptir/build api"),
        _part(_in(f"{_D}/ptir", "networks/*.py"),
              "engines/networks"),
        _part(_in(f"{_D}/ptir", "*.py"),
              "ptir/codes ptir/generate tools/generate tools/graph rewrite/folds"),
        _part(_in(f"{_D}/mind", "mlir/*.py"),
              "mind/mlir mind/iree"),
        _part(_in(f"{_D}/mind", "*.py"),
              "mind/text mind/ops mind/surface tools/generate tools/graph"),
        _part(_in(f"{_D}/tiny", "*.py"),
              "tiny/codes tiny/json tiny/ops tiny/symbols tools/generate tools/graph"),
        _part(_in(f"{_D}/pto", "generate/*.py"),
              "pto/generate"),
        _part(_in(f"{_D}/pto", "run/*.py order/*.py"),
              "pto/timeline pto/run pto/evolution pto/order pto/hazards"),
        _part(_in(f"{_D}/pto", "memory/*.py *.py"),
              "pto/codes pto/facts pto/targets pto/bounds pto/valid pto/machine pto/passes"),
        _part(_in(_D, "*.py"),
              "grammars/sniff grammars/foreign grammars/readers"),
    ),
    "cli": (
        _part(_in("ptir_tools/cli", "run.py checking.py session.py"),
              "cli/checking cli/inputs cli/nonfinite cli/dump golden"),
        _part(_in("ptir_tools/cli", "opt.py canonicalize.py fmt.py translate.py verify.py bisect.py reduce.py"),
              "cli/splitting cli/fmt cli/pipelines cli/reduce golden"),
        _part(_in("ptir_tools/cli", "*.py"),
              "cli/command_lines cli/numbers cli/output cli/reports cli/codes cli/man golden"),
    ),
    "tools": (
        _part(_in(_T, "language.py server.py textmate.py"),
              "tools/language tools/editors"),
        _part(_in(_T, "graph/*.py"),
              "tools/graph"),
        _part(_in(_T, "fuzz.py isolation.py observers.py"),
              "tools/fuzz cli/nonfinite"),
        _part(_in(_T, "reduce.py shrinking.py splitting.py cases.py reproduce.py debug.py"),
              "cli/reduce cli/splitting cli/pipelines"),
        _part(_in(_T, "bench.py profile.py stats.py"),
              "tools/timing golden"),
        _part(_in(_T, "values.py diff.py"),
              "tools/values"),
        _part(_in(_T, "*.py"),
              "tools/conform engines/compare cli/checking cli/fmt convert/comments cli/man golden"),
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
