"""`ptir targets`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from ptir_tools.cli.options import argument, subcommand
from ptir_tools.cli.session import Session
from ptir_tools.core.diagnostics import unknown_name
from ptir_tools.dialects.pto.targets import TARGETS, Target


@subcommand(argument("name", default="", metavar="[TARGET]"), reads=False)
def command(session: Session, name: str) -> None:
    """List the PTO targets, or show what one allows: capacities, layouts, element types per op.

    \b
    Examples:
      ptir targets
      ptir targets a3
    """
    if not name:
        sys.stdout.writelines(
            f"{t.name}  {', '.join(f'{loc} {n} bytes' for loc, n in t.capacity.items())}\n" for t in TARGETS.values()
        )
        return
    if name not in TARGETS:
        raise unknown_name("target", name, TARGETS)
    sys.stdout.writelines(f"{line}\n" for line in _lines(TARGETS[name]))


def _lines(target: Target) -> Iterator[str]:
    yield f"{target.name}"
    for location, layouts in target.layouts.items():
        size = target.capacity.get(location)
        yield f"  {location:8} {f'{size} bytes, ' if size else ''}layouts {', '.join(layouts)}"
    yield f"  products {', '.join(f'{a} x {b}' for a, b in sorted(target.products))}"
    for op, dtypes in target.dtypes.items():
        yield f"  {op:20} {' '.join(sorted(dtypes))}"
