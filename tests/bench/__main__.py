"""`python -m tests.bench [NAME…]`: measure, next to the peers that are installed (`pip install -e '.[bench]'`), in the same run.

Each module here that has `rows()` is one table: (what, ours, peer's, unit), medians of interleaved rounds; the peer's is None
where it is not installed. A ratio below 1 means that we are quicker. `peers`, `quantize` and `world` have arguments of their own.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path


def names() -> list[str]:
    """The tables there are. Nothing is imported: each table needs extras of its own."""
    return sorted(path.stem for path in Path(__file__).parent.glob("[!_]*.py") if "\ndef rows(" in path.read_text("utf-8"))


def main(wanted: Sequence[str]) -> None:
    """Print the tables of the modules named, or all of them."""
    known = names()
    if unknown := [name for name in wanted if name not in known]:
        sys.exit(f"no table {', '.join(unknown)} (there are: {', '.join(known)})")
    for name in wanted or known:
        print(f"\n{name}\n{'':44} {'ours':>10} {'peer':>10} {'ratio':>7}")
        for what, ours, peer, unit in importlib.import_module(f"tests.bench.{name}").rows():
            theirs, ratio = ("-", "-") if peer is None else (f"{peer:.2f}", f"{ours / peer:.2f}")
            print(f"{what:44} {ours:10.2f} {theirs:>10} {ratio:>7}  {unit}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] in (["peers"], ["quantize"], ["world"]):
        importlib.import_module(f"tests.bench.{sys.argv[1]}").main(sys.argv[2:])
    else:
        main(sys.argv[1:])
