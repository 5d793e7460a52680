"""Post-training quantization: products of a value and a constant are computed from integers of 8 or 4 bits.

`calibration=FILE` (.npz or .safetensors) has samples: an array for each input by name, with one more axis in front. Ranges are
those of the values on the first three quarters; errors are measured on the rest. The value becomes `dequantize(quantize(x))`, the
constant `dequantize` of integers. Put scales and biases into the weights first: by `convolutions,fold-scales{range=true}` and
`canonicalize`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from math import log10

from ptir_tools.core.arrays import Array
from ptir_tools.core.diagnostics import UsageError
from ptir_tools.core.dialect import Program, clone
from ptir_tools.core.dtypes import I1, SI4, SI8, UI4, UI8, DType
from ptir_tools.core.ir import Value
from ptir_tools.core.lazy import np
from ptir_tools.core.types import tensor
from ptir_tools.dialects.ptir.quantization.editor import Choice, Editor, balanced
from ptir_tools.dialects.ptir.quantization.products import Product, positive_part, products
from ptir_tools.dialects.ptir.quantization.samples import Arrays, Watch, errors, held_out, load, outputs
from ptir_tools.dialects.ptir.quantization.steps import Method, Spread
from ptir_tools.passes import PassContext
from ptir_tools.rewrite.context import Ready, Run
from ptir_tools.rewrite.rewriter import Rewriter

_TRIED = 4  # samples on which products are quantized one by one
_MARGIN = 0.99  # of the budget: what the program with flags, whose sums are rounded otherwise, may use


class Weights(StrEnum):
    """The dtype of constants."""

    SI8 = "si8"
    UI8 = "ui8"
    SI4 = "si4"
    UI4 = "ui4"


class Activations(StrEnum):
    """The dtype of values; none: they stay floats."""

    UI8 = "ui8"
    SI8 = "si8"
    NONE = "none"


DTYPES: dict[str, DType] = {d.name: d for d in (SI8, UI8, SI4, UI4)}
OPTIONS = {
    "calibration": "",
    "weights": Weights.SI8,
    "activations": Activations.UI8,
    "per-channel": True,
    "group": 0,
    "method": Method.MIN_MAX,
    "percentile": 99.99,
    "bias-correction": True,
    "smooth": 0.5,
    "results": False,
    "max-error": 0.0,
    "skip": "",
}


def run(program: Program, context: PassContext) -> None:
    """Compute products with constants in integers of 8 or 4 bits, by the ranges of values on samples; tells the error."""
    Quantizer(program, context).run()


class Quantizer:
    """Quantizes the entry of a program."""

    def __init__(self, program: Program, context: PassContext) -> None:
        options = context.options
        self.program, self.context, self.options = program, context, options
        values = DTYPES.get(options["activations"])
        self.choice = Choice(
            DTYPES[options["weights"]],
            values,
            options["per-channel"],
            options["method"],
            options["percentile"],
            options["group"],
            options["bias-correction"],
        )
        path, self.budget = options["calibration"], options["max-error"]
        if not 50 < self.choice.share <= 100:
            raise UsageError(f"option `percentile` is above 50 and at most 100, not `{self.choice.share:g}`")
        if options["smooth"] > 1:
            raise UsageError(f"option `smooth` is from 0 to 1, not `{options['smooth']:g}`")
        if self.choice.group and values is not None:
            raise UsageError("option `group` is for weights alone: activations=none")
        if not path and (values is not None or self.budget):
            help = "weights alone: activations=none"
            raise UsageError("pass `quantize` needs samples of the inputs: quantize{calibration=FILE}", help)
        self.samples = load(path, program) if path else []

    @property
    def ready(self) -> Ready:
        """How programs run. Raises UsageError where the caller gave no engine."""
        if self.context.ready is None:
            raise UsageError("pass `quantize` runs the program, and this context has no engine (`PassContext.ready`)")
        return self.context.ready

    def run(self) -> None:
        """Quantize, and report."""
        before = clone(self.program) if self.samples else self.program
        calibration, rest = held_out(self.samples) if self.samples else ([], [])
        with self.context.rewriter(self.program, self.program.main) as rw:
            chosen = self.chosen(rw)
            seen = self.seen(rw, chosen, calibration)
            if chosen and self.budget:
                chosen = self.within(chosen, seen, calibration[:_TRIED], rest)
            self.edit(rw, chosen, Editor(rw, self.choice, seen))
        self.context.edits += rw.edits
        if chosen and rest:
            self.report(before, rest)

    def chosen(self, rw: Rewriter) -> list[Product]:
        """The products to quantize. Raises UsageError for a name in `skip` that no product has."""
        every = list(products(rw))
        skipped = [name for name in self.options["skip"].split(";") if name]
        names = {p.name for p in every}
        if unknown := [name for name in skipped if name not in names]:
            raise UsageError(f"option `skip`: no product is named `{unknown[0]}`")
        return [p for p in every if p.name not in skipped]

    def seen(self, rw: Rewriter, chosen: list[Product], samples: Sequence[Arrays]) -> dict[Value, Spread]:
        """How the values that become integers are spread. Products of values that are not finite are taken out of `chosen`."""
        if not samples or not (self.choice.values or self.choice.corrected):
            return {}
        axes = {p.source: p.channel for p in reversed(chosen)}
        mixed = {p.source for p in chosen if p.channel != axes[p.source]}
        axes |= dict.fromkeys(mixed)  # no one axis
        lasts = self.lasts(rw, chosen)
        axes = {**dict.fromkeys(lasts.values()), **axes}
        watch = Watch(self.program, axes, samples, self.ready)
        watch.look(Spread.see)
        for p in [p for p in chosen if not watch.found[p.source].bounded]:
            self.context.measures.append(f"`{p.name}` stays in floats: its operand is not finite on the samples")
            chosen.remove(p)
        if self.options["smooth"] and self.choice.values:
            for v in axes.keys() - lasts.values():
                watch.found[v].divisors = balanced([p for p in chosen if p.source is v], watch.found[v], self.options["smooth"])
        if self.choice.method is not Method.MIN_MAX:
            watch.look(Spread.count)
        return watch.found

    def lasts(self, rw: Rewriter, chosen: Sequence[Product]) -> dict[str, Value]:
        """With `results`, the value by product that is rounded: its result, or the positive part of it."""
        if not self.options["results"] or self.choice.values is None:
            return {}
        found = {p.name: positive_part(rw, p.op.result) for p in chosen}
        return {name: v for name, v in found.items() if not rw.is_result(v)}

    def edit(self, rw: Rewriter, chosen: Sequence[Product], editor: Editor) -> None:
        """Quantize the products."""
        lasts = self.lasts(rw, chosen)
        for p in chosen:
            if self.context.step("quantize", p.op):
                if p.name in lasts:
                    editor.round_result(p, lasts[p.name])
                editor.quantize(p)
                self.context.count("quantized")
        self.context.count("erased", rw.erase_dead() if rw.edits else 0)

    def within(
        self, chosen: Sequence[Product], seen: Mapping[Value, Spread], few: Sequence[Arrays], rest: Sequence[Arrays]
    ) -> list[Product]:
        """The products with which the error stays under the budget: those are left out that alone make the largest errors."""
        run = self.switched(chosen, seen)

        def found(samples: Sequence[Arrays], names: Collection[str]) -> list[dict[str, Array]]:
            return outputs(run, samples, {f"{p.name}.on": np.asarray(p.name in names) for p in chosen})

        plain, names = found(rest, ()), [p.name for p in chosen]

        def fits(kept: Collection[str]) -> bool:
            return bool(max(errors(plain, found(rest, kept)).values()) <= self.budget * _MARGIN)

        if fits(names):
            return list(chosen)
        wanted = found(few, ())
        alone = {name: max(errors(wanted, found(few, [name])).values()) for name in names}
        order = sorted(names, key=alone.__getitem__)
        least, most = 0, len(order) - 1  # kept ones
        while least < most:
            middle = (least + most + 1) // 2
            least, most = (middle, most) if fits(order[:middle]) else (least, middle - 1)
        for name in reversed(order[least:]):
            self.context.measures.append(f"`{name}` stays in floats: alone it makes an error of {alone[name]:.3g}")
        return [p for p in chosen if p.name in order[:least]]

    def switched(self, chosen: Sequence[Product], seen: Mapping[Value, Spread]) -> Run:
        """The program with a flag for each product, whether it is quantized."""
        trial, names = clone(self.program), {p.name for p in chosen}
        main = trial.main
        flags = {name: Value(tensor(I1), f"{name}.on") for name in names}
        with self.context.rewriter(trial, main) as rw:
            copies = [p for p in products(rw) if p.name in names]
            editor = Editor(rw, self.choice, {q.source: seen[p.source] for p, q in zip(chosen, copies, strict=True)}, flags)
            if "input_names" in main.attrs:
                main.attrs["input_names"] = [*main.attrs["input_names"], *(v.name for v in flags.values())]
            main.params += flags.values()
            lasts = self.lasts(rw, copies)
            for q in copies:
                if q.name in lasts:
                    editor.round_result(q, lasts[q.name])
                editor.quantize(q)
        self.context.kept.pop(main, None)
        return self.ready(trial)

    def report(self, before: Program, rest: Sequence[Arrays]) -> None:
        """Tell the error of each output on samples that were not used for ranges."""
        error = errors(outputs(self.ready(before), rest), outputs(self.ready(self.program), rest))
        for name, off in error.items():
            level = f" ({-20 * log10(off):.1f} dB)" if off else ""
            self.context.measures.append(f"{name}: off by {off:.3g} of its norm{level}, on {len(rest)} held-out samples")
