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
              "rewrite/rules_families rewrite/rules_edited rewrite/pruning rewrite/rules rewrite/folds ptir/region_rules"
              " rewrite/rules_operands passes/simplify rewrite/rules_docs passes/contractions convert/raised"
              " rewrite/rules_golden"),
        _part(f"{_D}/mind/rewrites.py passes/mind/*.py",
              "mind/canonicalize passes/simplify mind/autodiff"),
        _part(f"{_D}/tiny/rewrites.py {_D}/pto/rewrites.py passes/tiny/*.py",
              "passes/simplify pto/passes"),
        _part(f"passes/ptir/quantize.py {_D}/ptir/quantization/*.py",
              "passes/quantize bridges/onnx/quantize"),
        _part("passes/ptir/convert_float.py",
              "passes/convert_float passes/passes passes/symbols_kept"),
        _part(_in("passes/ptir", "layout.py fold_scales.py fold_weights.py raise_*.py"),
              "passes/contractions passes/bytes passes/weights passes/layout passes/passes"),
        _part("passes/__init__.py",
              "passes/passes passes/pipelines passes/cse rewrite/rule_files tools/timing plugins cli/pipelines"),
        _part("passes/*.py passes/ptir/*.py",
              "passes/param_fold passes/cse passes/passes passes/result_names passes/dead_errors passes/symbols_kept"
              " rewrite/greedy passes/ptir"),
        _part("ptir_tools/rewrite/*.py",
              "rewrite/rewriter rewrite/folds rewrite/greedy passes/passes passes/cse rewrite/rules passes/result_names"
              " rewrite/rule_files passes/param_fold tools/timing rewrite/greedy_driver rewrite/rewriting passes/ptir"),
    ),
    "typerules": (
        _part(f"{_D}/ptir/ops/needs.py",
              "engines/random_needs engines/inputs"),
        _part(f"{_D}/ptir/ops/*.py",
              "ptir/ops_rules ptir/ops_shape ptir/ops_reduce ptir/ops_elementwise ptir/ops_control ptir/ops_custom"
              " ptir/ops_laws rewrite/folds engines/bounds passes/simplify"),
        _part(f"{_D}/mind/ops/*.py",
              "mind/ops mind/text mind/canonicalize engines/bounds passes/simplify"),
        _part(f"{_D}/tiny/ops/*.py",
              "tiny/ops tiny/codes passes/simplify engines/bounds"),
        _part(f"{_D}/pto/ops/*.py",
              "pto/ops pto/rules pto/codes pto/run passes/simplify pto/passes pto/generate"),
    ),
    "checks": (
        _part(f"ptir_tools/core/verify.py ptir_tools/core/definers.py ptir_tools/core/symbols.py {_D}/ptir/check.py",
              "core/core core/symbols ptir/codes ptir/where passes/symbols_kept passes/dead_errors convert/symbols"
              " ptir/region_rules engines/run"),
        _part(f"ptir_tools/core/expressions.py {_D}/tiny/symbols.py {_D}/tiny/legalize.py {_D}/tiny/piecewise.py"
              f" {_D}/tiny/check.py",
              "core/expressions core/extents tiny/codes tiny/ops tiny/legalize tiny/symbols passes/symbols_kept"),
        _part(f"{_D}/pto/memory/capacity.py {_D}/pto/check.py {_D}/pto/constraints.py {_D}/pto/legality.py {_D}/pto/rules.py"
              f" {_D}/pto/affine.py",
              "pto/codes pto/constraints pto/rules pto/passes pto/order pto/targets pto/facts pto/event_ids"),
        _part("ptir_tools/core/errors.py ptir_tools/engines/bounds.py ptir_tools/engines/compare.py",
              "engines/compare engines/detection engines/bounds cli/nonfinite cli/checking engines/planted_errors"
              " convert/extensions"),
        _part("ptir_tools/core/arrayfiles.py ptir_tools/engines/inputs.py",
              "core/arrays engines/random_needs engines/inputs cli/inputs"),
    ),
    "plan": (
        _part("ptir_tools/plan/mesh.py",
              "plan/mesh"),
        _part("ptir_tools/plan/*.py",
              "plan/plan plan/views plan/order plan/exact plan/files engines/memory engines/native/loops"),
    ),
    "hazards": (
        _part(f"{_D}/pto/order/hazards.py {_D}/pto/order/traces.py {_D}/pto/order/values.py {_D}/pto/memory/windows.py"
              f" {_D}/pto/run/machine.py"
              f" {_D}/pto/order/decisions.py {_D}/pto/memory/places.py {_D}/pto/order/signals.py {_D}/pto/carried.py",
              "pto/dependences pto/hazards pto/order pto/passes pto/assembly pto/run pto/machine pto/timeline"),
        _part(f"{_D}/pto/order/dependences.py",
              "pto/dependences pto/insert_events pto/passes"),
        _part("passes/pto/*.py",
              "pto/pass_laws pto/passes pto/bufferize pto/pipeline pto/event_ids pto/insert_events pto/split_cores"),
    ),
    "translators": (
        _part("ptir_tools/convert/ptir_to_mind/*.py ptir_tools/convert/mind_to_ptir/*.py",
              "convert/mind_to_ptir convert/ptir_to_mind convert/rows_of_mind convert/raised convert/edited"),
        _part("ptir_tools/convert/ptir_to_tiny/*.py",
              "convert/ptir_to_tiny convert/tiny_to_ptir convert/rows_of_tiny convert/symbols convert/raised convert/edited"
              " convert/functions"),
        _part("ptir_tools/convert/tiny_to_ptir/*.py",
              "convert/tiny_to_ptir convert/rows_of_tiny convert/views convert/symbols convert/raised convert/edited"),
        _part("ptir_tools/convert/ptir_to_pto/*.py",
              "convert/ptir_to_pto/tiles convert/ptir_to_pto/convert convert/ptir_to_pto/kernels convert/back"
              " convert/between"),
    ),
    "readers": (
        _part(f"{_D}/jsonc.py",
              "ptir/jsonc ptir/json ptir/quirks tiny/json grammars/places grammars/readers"),
        _part(f"{_D}/ptir/text/*.py",
              "grammars/places ptir/text ptir/literals ptir/fmt ptir/where ptir/roundtrip ptir/extensions ptir/tuples ptir/codes"
              " grammars/readers"),
        _part(f"{_D}/ptir/gptrs/*.py",
              "grammars/places ptir/dump ptir/json ptir/jsonc ptir/quirks ptir/hash ptir/trace ptir/extensions"
              " engines/trace_sink"),
        _part(f"{_D}/mind/text/*.py {_D}/mind/surface.py",
              "grammars/places mind/text mind/lines mind/surface mind/mlir grammars/readers"),
        _part(f"{_D}/pto/ptoas/*.py",
              "grammars/places pto/ptoas pto/fifos pto/fifo_texts"),
        _part(f"{_D}/mind/mic/*.py",
              "grammars/places mind/mic"),
        _part(f"{_D}/pto/text/*.py {_D}/pto/text/cpp/*.py",
              "grammars/places pto/text pto/lines pto/assembly pto/cpp pto/fifo_texts pto/host grammars/readers"),
        _part(f"{_D}/tiny/text/*.py",
              "grammars/places tiny/args tiny/json tiny/codes grammars/readers"),
    ),
    "kernels": (
        _part(_in(_C, "gemm.inl lines.inl epilogue.inl weights.inl patches.inl igemm.inl quantizing.inl bgemm.inl kernels.c"
                      " byte_patches.c byte_patches.h narrow.h isa.inl common.h"),
              "engines/native/sizes engines/native/native engines/native/narrow engines/native/tiles engines/native/isa"
              " engines/native/byte_chains"),
        _part(_in(_C, "rows.inl functions.inl quick.inl chain.inl chain.h transpose.h magnitudes.h"),
              "engines/native/sizes engines/native/tiles engines/native/native"),
        _part(_in(_C, "attention.inl"),
              "engines/native/sizes engines/native/attention engines/native/native"),
        _part(_in(_C, "gemv.inl"),
              "engines/native/vectors engines/native/sizes engines/native/native"),
        _part(_in(_C, "windows.inl moves.inl"),
              "engines/native/windows engines/native/native"),
        _part(_in(_C, "trees.c trees.inl trees.h"),
              "engines/trees"),
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
                      " native/byte_chains.py native/vectors.py native/windows.py"),
              "engines/native/sizes engines/native/attention engines/native/bands engines/native/windows"
              " engines/native/vectors engines/native/tiles engines/native/native engines/native/byte_chains"),
        _part(_in(_E, "native/*.py"),
              "engines/native/sizes engines/native/tiles engines/native/native engines/native/loops"
              " engines/native/edges engines/native/threads engines/trees engines/constants"),
        _part(_in(_E, "numpy/*.py"),
              "engines/ops engines/ranged engines/run engines/memory tools/timing cli/nonfinite engines/poison"
              " engines/native/loops engines/constants engines/threads engines/special"),
        _part(_in(_E, "xla.py"),
              "engines/jax_engine bridges/xla/jax_function bridges/xla/jax_mesh"),
        _part(_in(_E, "*.py"),
              "engines/parts engines/thresholds engines/compiled engines/ranged engines/run engines/engines engines/memory"
              " engines/trace_sink cli/dump"
              " tools/timing plan/files"),
    ),
    "bridges": (
        _part(_in(f"{_B}/onnx", "cells.py computed.py exporter.py emitter.py format.py graph.py idioms.py lowerings.py"),
              "bridges/onnx/export"),
        _part(_in(f"{_B}/onnx", "torch_export.py"),
              "ptir/torch_ops engines/torch_arrays"),
        _part(_in(f"{_B}/onnx", "forests.py ops/trees.py ops/classical.py ops/contrib.py ops/blockwise.py ops/experts.py"),
              "bridges/onnx/trees bridges/onnx/classical bridges/onnx/contrib bridges/onnx/contrib_formulas"),
        _part(_in(f"{_B}/onnx", "ops/attention.py ops/grouped.py"),
              "bridges/onnx/contrib bridges/onnx/contrib_formulas"),
        _part(_in(f"{_B}/onnx", "ops/signal.py"),
              "bridges/onnx/signals bridges/onnx/import"),
        _part(_in(f"{_B}/onnx", "ops/bounded.py"),
              "bridges/onnx/bounded"),
        _part(_in(f"{_B}/onnx", "*.py ops/*.py"),
              "bridges/onnx/numbers bridges/onnx/import bridges/onnx/attributes bridges/onnx/contrib"
              " bridges/onnx/export"),
        _part(_in(f"{_B}/stablehlo", "ops/lapack.py ops/bits.py"),
              "bridges/stablehlo/jax_lowerings"),
        _part(_in(_B, "linalg/*.py numbers.py"),
              "bridges/stablehlo/jax_lowerings bridges/numpy_trace"),
        _part(_in(f"{_B}/stablehlo", "ops/sharded.py"),
              "bridges/stablehlo/jax_devices bridges/stablehlo/import"),
        _part(_in(f"{_B}/stablehlo", "*.py ops/*.py"),
              "bridges/stablehlo/import bridges/stablehlo/jax_lowerings bridges/stablehlo/jax_bytecode"),
        _part(_in(_B, "c/*.py"),
              "bridges/c/c"),
        _part(_in(_B, "xla/*.py jax.py"),
              "bridges/xla/jax_function engines/jax_engine plan/mesh"),
        _part(_in(_B, "numpy_trace.py numpy_array.py numpy_functions.py numpy_linalg.py numpy_control.py"),
              "bridges/numpy_trace"),
        _part(_in(_B, "*.py"),
              "bridges/extents bridges/stablehlo/import bridges/onnx/import"),
    ),
    "core": (
        _part(_in("ptir_tools/core", "arrays.py decimals.py dtypes.py costs.py"),
              "core/costs core/arrays core/decimals core/core ptir/literals"),
        _part(_in("ptir_tools/core", "diagnostics.py render.py collector.py source.py violations.py spelling.py places.py"),
              "core/render core/diagnostics core/inserted core/core grammars/wrong_tokens core/results_shown tools/fix"
              " cli/reports"),
        _part(_in("ptir_tools/core", "factors.py strides.py"),
              "core/strides plan/mesh plan/views"),
        _part(_in("ptir_tools/core", "files.py limits.py"),
              "cli/output cli/inputs core/hostile_arrays trust core/many_regions"),
        _part(_in("ptir_tools/core", "extremes.py"),
              "core/extremes"),
        _part(_in("ptir_tools/core", "extents.py where.py"),
              "core/extents ptir/where passes/symbols_kept convert/symbols"),
        _part(_in("ptir_tools/core", "cpython.py lazy.py typed.py records.py"),
              "core/records core/cpython core/core startup"),
        _part(_in("ptir_tools/core", "*.py"),
              "core/ir core/core core/many_regions tools/census passes/dead_errors ptir/region_rules ptir/ops_laws"
              " rewrite/rewriter adding_an_op tools/generate"),
        _part("ptir_tools/__main__.py",
              "cli/process"),
        _part("ptir_tools/*.py",
              "api plugins rewrite/rewriting"),
    ),
    "convert": (
        _part(_in("ptir_tools/convert", "*.py"),
              "convert/ranges convert/registry convert/between convert/functions convert/rows_of_tiny convert/unrolling"),
    ),
    "dialects": (
        _part(_in(f"{_D}/ptir", "kernels/layout.py kernels/scales.py"),
              "passes/layout passes/passes passes/convert_float passes/ptir"),
        _part(_in(f"{_D}/ptir", "kernels/fusion.py kernels/targets/fused.py"),
              "passes/passes cli/fmt passes/ptir passes/programs"),
        _part(_in(f"{_D}/ptir", "kernels/targets/trees.py composites/trees.py"),
              "engines/trees"),
        _part(_in(f"{_D}/ptir", "kernels/*.py kernels/*/*.py"),
              "ptir/recognize ptir/examples"),
        _part(_in(f"{_D}/ptir", "composites/*.py"),
              "convert/extensions passes/passes ptir/recognize"),
        _part(_in(f"{_D}/ptir", "builder/*.py"),
              "ptir/build api"),
        _part(_in(f"{_D}/ptir", "networks/*.py"),
              "tools/census engines/networks"),
        _part(_in(_D, "ptir/generate.py mind/generate.py tiny/generate.py"),
              "tools/census tools/generate ptir/generate"),
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
              "pto/timeline pto/run pto/fifos pto/evolution pto/order pto/hazards"),
        _part(_in(f"{_D}/pto", "memory/*.py *.py"),
              "pto/costs pto/codes pto/fifos pto/facts pto/targets pto/bounds pto/valid pto/machine pto/passes"),
        _part(_in(_D, "*.py"),
              "grammars/reading grammars/sniff grammars/foreign trust plugins engines/trace_sink cli/reports cli/inputs"
              " grammars/readers"),
    ),
    "cli": (
        _part(_in("ptir_tools/cli", "run.py checking.py session.py"),
              "cli/passed_on cli/shown cli/checking cli/output cli/inputs cli/nonfinite cli/dump trust engines/planted_errors"
              " engines/bounds golden"),
        _part(_in("ptir_tools/cli", "opt.py canonicalize.py fmt.py translate.py verify.py bisect.py reduce.py"),
              "cli/passed_on cli/splitting cli/output cli/fmt cli/pipelines cli/reduce trust convert/comments cli/checking"
              " golden"),
        _part(_in("ptir_tools/cli", "diff.py graph.py stats.py plan.py info.py gen.py"),
              "cli/passed_on cli/shown tools/values cli/output tools/graph plan/files golden"),
        _part(_in("ptir_tools/cli", "report.py output.py parallel.py tables.py"),
              "cli/reports cli/output cli/codes cli/splitting cli/process golden"),
        _part(_in("ptir_tools/cli", "fuzz.py new.py demo.py lsp.py completion.py fix.py lit.py conform.py bench.py explain.py"),
              "cli/passed_on cli/shown cli/codes tools/new tools/demo tools/fix tools/lit tools/conform tools/timing"
              " tools/language cli/process golden"),
        _part(_in("ptir_tools/cli", "*.py"),
              "cli/command_lines cli/passed_on cli/numbers cli/output cli/reports cli/codes cli/man startup docs cli/process"
              " golden"),
    ),
    "tools": (
        _part(_in(_T, "language.py server.py textmate.py"),
              "tools/language tools/editors"),
        _part(_in(_T, "graph/*.py"),
              "tools/graph golden"),
        _part(_in(_T, "fuzz.py isolation.py"),
              "tools/fuzz"),
        _part(_in(_T, "reduce.py shrinking.py splitting.py reproduce.py debug.py observers.py"),
              "tools/shrinking cli/reduce cli/splitting cli/nonfinite cli/pipelines golden"),
        _part(_in(_T, "bench.py profile.py stats.py"),
              "tools/timing golden"),
        _part(_in(_T, "values.py diff.py"),
              "tools/values golden"),
        _part(_in(_T, "demo.py notebook.py"),
              "tools/demo api"),
        _part(_in(_T, "compare.py bisect.py"),
              "tools/compare cli/checking cli/pipelines engines/planted_errors golden"),
        _part(_in(_T, "runlines.py filecheck.py lit.py expectations.py check_command.py"),
              "tools/checks tools/lit cli/codes cli/reduce golden"),
        _part(_in(_T, "toolchain.py"),
              "pto/host"),
        _part(_in(_T, "inputs.py"),
              "cli/inputs cli/output tools/conform engines/inputs"),
        _part(_in(_T, "*.py"),
              "tools/conform tools/new tools/fix cli/codes cli/man cli/fmt convert/comments docs golden"),
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
