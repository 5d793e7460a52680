"""Which ops may run speculatively: those that cannot fail and draw no random numbers."""

from __future__ import annotations

from ptir_tools.core.ir import Op, Region, may_fail


def never_fails(op: Op) -> bool:
    """Whether `op` ends without an error on any operands of its types. Loops and branches may take any time."""
    return not (op.regions or may_fail(op))


def draws(op: Op) -> bool:
    """Whether `op`, or anything in a region that it runs, draws random numbers."""
    found: set[Region] = set()
    stack = [op]
    while stack:
        at = stack.pop()
        if at.defn.is_random:
            return True
        for region in at.regions:
            if region not in found:
                found.add(region)
                stack.extend(region.body)
    return False
