"""`ptir targets`."""

from __future__ import annotations

import sys

from ptir_tools.cli.options import argument, subcommand
from ptir_tools.cli.session import Session
from ptir_tools.core.diagnostics import unknown_name
from ptir_tools.dialects import DIALECTS
from ptir_tools.dialects.pto.targets import find


@subcommand(argument("name", default="", metavar="[TARGET]"), reads=False)
def command(session: Session, name: str) -> None:
    """List the PTO targets, or show what one allows: capacities, layouts, element types per op. Other names of a target are
    known, such as a2 for a3.

    \b
    Examples:
      ptir targets
      ptir targets a3
    """
    known = {target: machine for dialect in DIALECTS.values() for target, machine in dialect.targets().items()}
    if not name:
        sys.stdout.writelines(f"{target}  {machine.summary}\n" for target, machine in known.items())
        return
    if name not in known and (found := find(name)) is not None:
        name = found.name
    if name not in known:
        raise unknown_name("target", name, known)
    sys.stdout.write(f"{name}\n")
    sys.stdout.writelines(f"  {line}\n" for line in known[name].details())
