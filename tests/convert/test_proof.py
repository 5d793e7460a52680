"""The proof of translation: generated programs, there and back, both sides run and compared.

Two hundred per pair of IRs always; of the 10,000 per pair that `PTIR_PROOFS=10000 pytest -m slow` runs, a share is run as `slow`.
`PTIR_PROOFS_FROM=N` begins with another seed, so that they can be run in pieces.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.source import Source
from ptir_tools.core.symbols import bind
from ptir_tools.core.verify import verify
from ptir_tools.dialects import load_format
from tests.conftest import TESTDATA
from tests.convert.translations import IRS, generated, prove, reread
from tests.tiny.graphs import CONV, SIZES

FEW = 100  # per IR and target
MANY = int(os.environ.get("PTIR_PROOFS", "1000"))  # per pair of IRs, half of them each way
FROM = int(os.environ.get("PTIR_PROOFS_FROM", str(FEW)))  # the first seed of these
PAIRS = [(ir, target) for ir in IRS for target in IRS if target != ir]
# Of the programs of a pair, how many at least the target accepts, in percent: a proof of refusals proves nothing.
ACCEPTED = {
    ("ptir", "mind"): 30, ("ptir", "tiny"): 45, ("mind", "ptir"): 100, ("mind", "tiny"): 45, ("tiny", "ptir"): 97,
    ("tiny", "mind"): 40,
}  # fmt: skip


def proofs(ir: str, target: str, seeds: range, opt: bool = False) -> Counter[str]:
    """What came of these programs."""
    found: Counter[str] = Counter()
    for seed in seeds:
        before = generated(ir, target, seed)
        diagnostics = Diagnostics()
        assert verify(before, diagnostics), (seed, [d.message for d in diagnostics])
        found[prove(reread(before), target, seed, opt)] += 1
    return found


def judge(ir: str, target: str, found: Counter[str]) -> None:
    """Enough is accepted, and all that is accepted comes back."""
    assert not found["there"], f"does not come back: {found}"
    assert found.total() - found["refused"] >= ACCEPTED[ir, target] * found.total() / 100, found


@pytest.mark.parametrize(("ir", "target"), PAIRS)
def test_generated_programs(ir: str, target: str) -> None:
    found = proofs(ir, target, range(FEW))
    judge(ir, target, found)


@pytest.mark.slow
@pytest.mark.parametrize(("ir", "target"), PAIRS)
def test_many_generated_programs(ir: str, target: str) -> None:
    share = MANY // 2
    found = proofs(ir, target, range(FROM, FROM + share), opt=True)
    judge(ir, target, found)


SAMPLES = {
    "mind": sorted((TESTDATA / "mind").glob("*.ir")),
    "tiny": sorted((TESTDATA / "tiny").glob("*.json")),
    "ptir": [*sorted((TESTDATA / "ptir" / "func").glob("f*.func.ptir")), *sorted((TESTDATA / "ptir" / "func").glob("f*.json"))],
}
FORMATS = {".json": "ptir-json", ".ptir": "ptir"}


def sample(ir: str, path: Path) -> Program | None:
    """A sample as it is in the repository, its symbols bound; None when it is there to be refused."""
    diagnostics = Diagnostics(Source(path.name, path.read_text("utf-8")))
    form = FORMATS[path.suffix] if ir == "ptir" else ir
    program = load_format(form).read(diagnostics.source, diagnostics, Options())
    if program is None:
        return None
    bind(program, CONV if "conv2d" in path.name else {**SIZES, "S": 3, "N": 5} if ir != "mind" else {})
    return program if verify(program, diagnostics) and not diagnostics.errors else None


@pytest.mark.parametrize(("ir", "path"), [(ir, p) for ir in SAMPLES for p in SAMPLES[ir]], ids=lambda x: getattr(x, "name", x))
def test_samples(ir: str, path: Path) -> None:
    for target in IRS:
        if target != ir and (before := sample(ir, path)) is not None:
            prove(before, target)
