"""PTIR programs written short, and whether what they were translated to in PTO computes the same."""

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.core.source import Source
from ptir_tools.core.verify import verify
from ptir_tools.dialects.ptir.text import format as ptir_text
from ptir_tools.dialects.pto.text import format as pto_text
from ptir_tools.engines.compare import check
from ptir_tools.engines.options import RunOptions

TARGETS = ("a3", "a5")


def program(source):
    found = Diagnostics(Source("test.ptir", source))
    made = ptir_text.read(found.source, found, Options())
    assert made is not None and verify(made, found), found.items
    return made


def single(parameters, result, *lines):
    return function(parameters, result, *lines, returns="%y")


def function(parameters, results, *lines, returns):
    shown = f"({results})"
    return program("\n".join([f"func @main({parameters}) -> {shown} {{", *lines, f"return {returns}", "}"]))


def agree(before, after, **options):
    """Both compute the same, in order and with every asynchronous op as late as its waits allow."""
    for order in ("sequential", "adversarial"):
        found = check(before, after, runs=1, options=RunOptions(order=order, **options))
        assert not found.diverged, (order, list(map(str, found.diverged)))


def written(p):
    return "".join(pto_text.write(p, Diagnostics(), Options()))


def reread(p):
    """The program as its text says it, which verifies."""
    found = Diagnostics(Source("test.pto", written(p)))
    made = pto_text.read(found.source, found, Options())
    assert made is not None and verify(made, found) and not found.errors, found.items
    return made
