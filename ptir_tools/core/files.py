"""Files: data is read from regular files only, and a file is replaced completely or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

from ptir_tools.core.lazy import lazy
from ptir_tools.core.typed import IO, TYPE_CHECKING

if TYPE_CHECKING:
    import tempfile
else:
    tempfile = lazy("tempfile")


WRITES = "PTIR_WRITES"


@contextlib.contextmanager
def named(path: str | None) -> Iterator[None]:
    """An OSError inside names `path`, never a temporary file."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None


def require_writable(path: str) -> None:
    """Raise OSError for a file outside the folder that `WRITES` names, if it does. The commands of a test have that folder."""
    folder = os.environ.get(WRITES)
    if folder is not None and not is_below(path, folder):
        raise OSError(errno.EPERM, "a test writes files only in %t and as %t.…", path)


def require_regular(path: str) -> None:
    """Raise OSError for a folder, a pipe or a device, because to read from one may never end; and if there is no file."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a pipe" if stat.S_ISFIFO(mode) else "a device or a socket"
        raise OSError(errno.EINVAL, f"this is {kind}, and a regular file is wanted", path)


def open_data(path: str) -> IO[bytes]:
    """The regular file at `path`, opened for reading. Raises OSError."""
    require_regular(path)
    return open(path, "rb")


def is_below(path: str, folder: str) -> bool:
    """Whether the file at `path`, links followed, is below `folder` (empty: the current one)."""
    real, root = os.path.realpath(path), os.path.realpath(folder or os.curdir)
    return real == root or real.startswith(os.path.join(root, ""))


def is_same(path: str, other: str) -> bool:
    """Whether two paths, links followed, name one file."""
    return os.path.realpath(path) == os.path.realpath(other)


@contextlib.contextmanager
def replacing(path: str | None) -> Iterator[IO[bytes]]:
    """A new file that replaces `path` if the block ends without an error. A symbolic link is followed and the mode kept; a
    pipe or a device is written directly. Until then the bytes are in a file of a new name in the same folder."""
    target = os.path.realpath(path or "")
    require_writable(target)
    with named(path):
        mode = _mode(target)
    if mode is not None and not stat.S_ISREG(mode):
        with named(path), open(target, "wb") as direct:
            yield direct
        return
    with named(path):
        handle, temporary = tempfile.mkstemp(prefix=".ptir-", dir=os.path.dirname(target))
    try:
        with named(path), open(handle, "wb") as file:
            yield file
        os.chmod(temporary, stat.S_IMODE(mode) if mode is not None else 0o666 & ~_umask())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _mode(path: str) -> int | None:
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return None


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
