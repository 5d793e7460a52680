"""From bytes to a program: decoding, recognizing the format, calling its reader."""

from __future__ import annotations

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.core.ir import Program
from ptir_tools.core.limits import LimitExceeded, Limits
from ptir_tools.core.source import Source, Span
from ptir_tools.core.verify import check_ranks
from ptir_tools.dialects import FORMATS, load_format
from ptir_tools.dialects.sniff import beginning, sniff

BOM = "\ufeff"


def decode(data: bytes, name: str, diagnostics: Diagnostics, limits: Limits) -> Source | None:
    """The text of `data`: UTF-8, a byte-order mark dropped, line ends as `\\n`. Raises LimitExceeded when it is too big."""
    if len(data) > limits.file_bytes:
        raise LimitExceeded(f"{name} has {len(data)} bytes, the limit is {limits.file_bytes}", "--max-file-bytes")
    try:
        text, bad = data.decode("utf-8"), None
    except UnicodeDecodeError as error:
        text, bad = data.decode("utf-8", "replace"), error
    source = Source(name, text.removeprefix(BOM).replace("\r\n", "\n"))
    diagnostics.source = source
    if bad is None:
        return source
    at = len(data[: bad.start].decode("utf-8").removeprefix(BOM).replace("\r\n", "\n"))
    message = f"byte 0x{data[bad.start]:02x} at offset {bad.start} is not UTF-8"
    diagnostics.error("InvalidEncoding", message, Span(at, at + 1))
    return None


def recognize(source: Source, diagnostics: Diagnostics) -> str | None:
    """The format of `source`, or None after reporting `UnknownFormat`."""
    if (found := sniff(source.text)) is not None:
        return found
    names = ", ".join(e.name for e in FORMATS.values() if e.readable)
    at = beginning(source.text)
    what = "begins like no known format" if at < len(source.text) else "is empty"
    diagnostics.error("UnknownFormat", f"the text {what}", Span(at, at), help=f"say what it is with --from FORMAT: {names}")
    return None


def read(source: Source, diagnostics: Diagnostics, options: Options, form: str | None = None) -> Program | None:
    """The program in `source`, in format `form` or else the one its content tells. Errors go to `diagnostics`.

    A program is given back whenever the reader could make one, errors or not. Raises LimitExceeded.
    """
    diagnostics.source = source
    form = form or recognize(source, diagnostics)
    if form is None:
        return None
    reader = load_format(form).read
    if reader is None:
        raise ValueError(f"{form} cannot be read")
    program = reader(source, diagnostics, options)
    if program is not None:
        program.source = source
        program.format = form
        check_ranks(program, options.limits)
    return program
