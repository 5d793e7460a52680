"""Several processes that run one program together, on one machine or on many, by jax.distributed."""

from __future__ import annotations

import re

from ptir_tools.core.diagnostics import UsageError
from ptir_tools.core.lazy import lazy
from ptir_tools.core.records import dataclass
from ptir_tools.core.typed import TYPE_CHECKING

if TYPE_CHECKING:
    import jax
else:
    jax = lazy("jax")

WAIT = 300  # seconds in which all hosts must connect


@dataclass(slots=True, frozen=True)
class Hosts:
    """Processes that run one program together: the address of the first, how many there are, and which this one is."""

    address: str
    count: int
    index: int


def hosts_of(text: str) -> Hosts:
    """`HOST:PORT,N,I`. Raises ValueError."""
    m = re.fullmatch(r"(\S+:[0-9]{1,5}),([0-9]{1,6}),([0-9]{1,6})", text.strip())
    if m is None or int(m[3]) >= int(m[2]):
        raise ValueError(f"{text!r} is not HOST:PORT,N,I: the address of host 0, how many hosts, and which is this, from 0 on")
    return Hosts(m[1], int(m[2]), int(m[3]))


def join(hosts: Hosts) -> None:
    """Make this process one of several that run together, once. Raises UsageError."""
    if jax.distributed.is_initialized():
        return
    try:
        jax.distributed.initialize(hosts.address, hosts.count, hosts.index, initialization_timeout=WAIT)
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"the {hosts.count} hosts do not connect at {hosts.address}: {reason}") from error
