"""From bytes to a program: decoding, recognizing the format, calling its reader; folders that a trace wrote."""

from __future__ import annotations

import codecs
import os
import re

from ptir_tools.core import symbols
from ptir_tools.core.cpython import RLock
from ptir_tools.core.diagnostics import Diagnostics, PluginFault, UsageError, unknown_name
from ptir_tools.core.dialect import BIND, SHAPES, Codes, Options, Program
from ptir_tools.core.files import open_data
from ptir_tools.core.lazy import lazy
from ptir_tools.core.limits import LimitExceeded, Limits, using
from ptir_tools.core.source import Source, Span
from ptir_tools.core.spelling import did_you_mean, nearest
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.types import ShapedType
from ptir_tools.core.verify import check_sizes, check_types
from ptir_tools.core.violations import Violation, require
from ptir_tools.dialects import FORMATS, OWNERS, load_format
from ptir_tools.dialects.sniff import beginning, sniff, sniff_bytes

if TYPE_CHECKING:
    import filecmp

    from ptir_tools.dialects import foreign
    from ptir_tools.dialects.ptir.gptrs import trace
else:
    filecmp = lazy("filecmp")
    foreign = lazy("ptir_tools.dialects.foreign")
    trace = lazy("ptir_tools.dialects.ptir.gptrs.trace")

BOM = "\ufeff"
_UTF16 = "this is UTF-16, as PowerShell's `>` writes it: save it as UTF-8"


def program_file(path: str) -> str:
    """The file of the program at `path`. In the folder of a traced run, it is the structure, or the JSON if there is no
    structure. In the folder of a trace, it is that of the only run.

    Raises UsageError for a trace of several programs.
    """
    if not os.path.isdir(path):
        return path
    if (inside := _traced(path)) is not None:
        return inside
    folders = (os.path.join(path, name) for name in sorted(os.listdir(path)))
    runs = [found for folder in folders if (found := _traced(folder)) is not None]
    if not all(_same_program(runs[0], other) for other in runs[1:]):
        raise UsageError(f"{path} is a trace of several programs; name one: {', '.join(map(os.path.dirname, runs[:5]))}")
    return runs[0] if runs else path


def _traced(folder: str) -> str | None:
    """The file that has the program of a traced run, or None when `folder` is not that of one."""
    paths = (os.path.join(folder, name) for name in (trace.STRUCTURE, trace.PAYLOADS))
    return next((p for p in paths if os.path.exists(p)), None)


def _same_program(first: str, second: str) -> bool:
    """Whether two traced runs are of one program: structure and payloads are the same, byte for byte."""
    one, other = (os.path.join(os.path.dirname(p), trace.PAYLOADS) for p in (first, second))
    both = os.path.exists(one)
    same = both == os.path.exists(other) and (not both or filecmp.cmp(one, other, shallow=False))
    return same and filecmp.cmp(first, second, shallow=False)


def decode(data: bytes, name: str, diagnostics: Diagnostics, limits: Limits, form: str | None = None) -> Source | None:
    """The text of `data`: UTF-8, a byte-order mark dropped, line ends as `\\n`. What is none is reported with the code of
    `form`, or of the format that the rest tells. A binary format keeps its bytes. Raises LimitExceeded when it is too big."""
    binary = (FORMATS[form].binary if form in FORMATS else sniff_bytes(data)) is not None
    if len(data) > (most := limits.binary_bytes if binary else limits.file_bytes):
        flag = "--max-binary-bytes" if binary else "--max-file-bytes"
        raise LimitExceeded(f"more than {most} bytes", flag, source=Source(name, ""))
    if binary:
        diagnostics.source = source = Source(name, "", data=data)
        return source
    try:
        text, bad = data.decode("utf-8"), None
    except UnicodeDecodeError as error:
        text, bad = data.decode("utf-8", "replace"), error
    source = Source(name, text.removeprefix(BOM).replace("\r\n", "\n"))
    source.raw = text if len(text) > len(source.text) else None
    diagnostics.source = source
    if bad is None:
        return source if _is_text(source, diagnostics, form) else None
    if form is None and (other := foreign.foreign(data)) is not None:
        diagnostics.error("UnknownFormat", f"this is {other.name}, not a text that can be read", help=other.help)
        return None
    at = len(data[: bad.start].decode("utf-8").removeprefix(BOM).replace("\r\n", "\n"))
    message = f"byte 0x{data[bad.start]:02x} at offset {bad.start} is not UTF-8"
    utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    diagnostics.error(_encoding(source, form), message, Span(at, at + 1), help=_UTF16 if utf16 else None)
    return None


def _encoding(source: Source, form: str | None) -> str:
    """The code for bytes that are no text: of the format, or of the one that the rest tells."""
    owner = OWNERS.get(form or sniff(source.text) or "")
    return (owner.codes if owner is not None else Codes()).encoding


def _is_text(source: Source, diagnostics: Diagnostics, form: str | None) -> bool:
    """Whether `source` has lines of characters; False after reporting a NUL, or lines that end as on old Macs."""
    text, help = source.text, None
    if form is None and "\0" in text and (other := foreign.foreign(text.encode("utf-8", "surrogatepass"))) is not None:
        diagnostics.error("UnknownFormat", f"this is {other.name}, not a text that can be read", help=other.help)
        return False
    if (at := text.find("\0")) >= 0:
        message = "a NUL character is in no program"
        if min(text[0::2].count("\0"), text[1::2].count("\0")) * 8 < text.count("\0") > len(text) // 4:
            help = _UTF16
    elif "\r" in text and "\n" not in text and text[beginning(text) :][:1] != "{":  # in JSON it is a blank
        at, message = text.index("\r"), "this line ends with only CR"
        help = "end lines with LF, or with CR LF: tr '\\r' '\\n' does it"
    else:
        return True
    diagnostics.error(_encoding(source, form), message, Span(at, at + 1), help=help)
    return False


def recognize(source: Source, diagnostics: Diagnostics) -> str | None:
    """The format of `source`, or None after reporting `UnknownFormat`."""
    if source.data is not None:
        return sniff_bytes(source.data)
    found = sniff(source.text)
    if found is not None and not FORMATS[found].ambiguous:
        return found
    first = beginning(source.text)
    if (other := foreign.foreign(source.text.encode("utf-8", "surrogatepass"))) is not None:
        span = Span(first, max(first, source.text.find("\n", first)))
        diagnostics.error("UnknownFormat", f"this is {other.name}", span, help=other.help)
        return None
    if found is not None:
        return found
    word = re.compile(r"[A-Za-z_.]*").match(source.text, first)
    if word is not None and (meant := nearest(word[0], (x for e in FORMATS.values() for x in e.opening))) is not None:
        diagnostics.error("UnknownFormat", f"no format begins with `{word[0]}`", Span(*word.span()), instead=meant)
        return None
    key = re.compile(r'\{\s*("\w+")\s*:').match(source.text, first)
    if key is not None and (meant := nearest(key[1], (k for e in FORMATS.values() for k in e.json_keys))) is not None:
        diagnostics.error("UnknownFormat", f"no format has the key {key[1]}", Span(*key.span(1)), instead=meant)
        return None
    if source.text.startswith("{", first):
        keys = "; ".join(f"{e.name}: {', '.join(e.json_keys)}" for e in FORMATS.values() if e.json_keys)
        message = "this is JSON, but no program: none of its keys tells a format"
        help = f"a program has one of these keys. {keys}"
        diagnostics.error("UnknownFormat", message, Span(first, first + 1), help=help)
        return None
    names = ", ".join(e.name for e in FORMATS.values() if e.readable and e.binary is None)
    at = first
    what = "begins like no known format" if at < len(source.text) else "is empty"
    diagnostics.error("UnknownFormat", f"the text {what}", Span(at, at), help=f"say what it is with --from FORMAT: {names}")
    return None


_reading = RLock()


def read(source: Source, diagnostics: Diagnostics, options: Options, form: str | None = None) -> Program | None:
    """The program in `source`, in format `form` or else the one its content tells. Errors go to `diagnostics`.

    A program is given back whenever the reader could make one, errors or not. Raises LimitExceeded. One text is read at a time,
    whatever threads ask: a parser is made once for a format, and knows what it reads.
    """
    with _reading:
        try:
            with using(options.limits):
                return _read(source, diagnostics, options, form)
        except LimitExceeded as limit:
            raise limit.at(0, source) from None


def fixed(program: Program, diagnostics: Diagnostics, options: Options) -> None:
    """Replace symbols by the numbers that are given, and by the extents that inputs are given. A name that is not there is a
    warning; raises UsageError for an input that cannot have its shape. Readers of models have done it where they are `bound`."""
    bind, shapes = options[BIND], options[SHAPES]
    if not bind and not shapes:
        return
    known, numbers = symbols.symbols(program) + program.attrs.pop("bound", []), dict(bind)
    for name in bind:
        if name not in known:
            help = f"its symbols are {', '.join(known)}" if known else "it has no symbols"
            suggestion = nearest(name, known)
            message = f"the program has no symbol `{name}`, which --bind names"
            diagnostics.warning("UnknownSymbol", message, help=did_you_mean([suggestion]) if suggestion else help)
    main = program.function(program.entry)
    params = () if main is None else main.params
    types = dict(zip((main and main.attrs.get("input_names")) or [p.name for p in params], (p.type for p in params), strict=True))
    for name, extents in shapes.items():
        if name not in types:
            raise unknown_name("input", name, types, " whose shape is given")
        t = types[name]
        if not isinstance(t, ShapedType) or t.is_memory:
            continue  # extents of memory are those of its array
        shape = tuple(d if n is None else n for d, n in zip(t.shape, extents, strict=False))
        try:
            require(len(extents) == len(t.shape), program.dialect.codes.extent, "the ranks differ")
            symbols.unify(t, t.with_shape(shape), numbers, f"input `{name}`", program.dialect.codes.extent)
        except Violation as violation:
            given = ",".join("*" if n is None else str(n) for n in extents)
            raise UsageError(
                f"input `{name}` is {program.dialect.type_text(t)}, and cannot have the shape {given}: {violation.message}"
            ) from None
    symbols.bind(program, numbers)


def _read(source: Source, diagnostics: Diagnostics, options: Options, form: str | None) -> Program | None:
    diagnostics.source = source
    if not _is_text(source, diagnostics, form) or (form := form or recognize(source, diagnostics)) is None:
        return None
    for entry in FORMATS.values():
        if entry.name != form and any(options[o] for o in entry.options):
            flags = " and ".join(str(o.flag) for o in entry.options)
            raise UsageError(f"{flags} are for {entry.name}, and this is {form}")
    reader = load_format(form).read
    if reader is None:
        raise ValueError(f"{form} cannot be read")
    source.form = form
    before = diagnostics.errors
    program = reader(source, diagnostics, options)
    if not isinstance(program, Program) and (program is not None or diagnostics.errors == before):
        raise PluginFault(reader, f"the reader of `{form}` gives neither a program nor an error")
    if program is not None:
        program.source = source
        program.format = program.dialect.formats[0].name if FORMATS[form].imported else form
        if (sidecar := FORMATS[form].sidecar) is not None and (path := sidecar.path(source.name)) is not None:
            with open_data(path) as file:
                more = decode(file.read(options.limits.file_bytes + 1), path, diagnostics, options.limits)
            diagnostics.source = source
            if more is not None:
                sidecar.supply(program, more, diagnostics, options)
        fixed(program, diagnostics, options)
        check_types(program, options.limits)
        check_sizes(program, options.limits)
    return program
