"""Counts of a suite: right, wrong, refused by reason, errors."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

ENGINES = ("auto", "numpy")  # that run every case: the default one, and the one for systems without a C compiler


@dataclass(slots=True)
class Report:
    """What became of each case."""

    suite: str
    right: list[str] = field(default_factory=list)
    given: list[str] = field(default_factory=list)  # those of them with operands that had to be constants
    wrong: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    slow: dict[str, str] = field(default_factory=dict)  # some of the others

    def lines(self, verbose: bool = False) -> list[str]:
        """The report: counts, wrong cases and errors with their names, refusals by reason."""
        total = sum(map(len, (self.right, self.wrong, self.refused, self.errors)))
        counts = f"{len(self.right)} right, {len(self.wrong)} wrong, {len(self.refused)} refused, {len(self.errors)} errors"
        if self.given:
            counts += f"; {len(self.right) - len(self.given)} right as written"
        out = [f"{self.suite}: {total} cases: {counts}"]
        out += [f"  given operands: {', '.join(sorted(self.given))}"] if verbose and self.given else []
        for what, cases in (("wrong", self.wrong), ("error", self.errors), ("slow", self.slow)):
            out += [f"  {what}: {name}: {text}" for name, text in sorted(cases.items())]
        reasons: dict[str, list[str]] = defaultdict(list)
        for name, reason in self.refused.items():
            reasons[reason].append(name)
        for reason, n in Counter({r: len(names) for r, names in reasons.items()}).most_common():
            out.append(f"  refused {n:4}: {reason}" + (f" ({', '.join(sorted(reasons[reason]))})" if verbose else ""))
        return out
