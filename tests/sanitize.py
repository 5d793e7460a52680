"""`python -m tests.sanitize address|undefined|thread [pytest arguments]`: the native tests under a sanitizer of the compiler.

The extension is built with the sanitizer into `build/sanitize/NAME`, next to links to everything else of the package, and the
tests run against that copy: this module is also the plug-in of pytest that makes sure of it. Any finding ends the run with a
failure. `make asan`, `make ubsan` and `make tsan` are the same.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
FLAGS = {
    "address": ("-fsanitize=address", "libasan.so"),
    # fwrapv defines signed overflow, so a wrapping sum is no finding; everything else that C leaves undefined is
    "undefined": ("-fsanitize=undefined,float-cast-overflow -fno-sanitize-recover=all", "libubsan.so"),
    "thread": ("-fsanitize=thread", "libtsan.so"),
}
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1:allocator_may_return_null=1",  # the interpreter leaks by design
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "halt_on_error=1:exitcode=66:die_after_fork=0",
}
COPY = "PTIR_SANITIZED"  # the folder of the built copy
NATIVE = ("native", "attention", "edges", "narrow", "tiles", "loops", "vectors", "windows", "bands", "sizes", "threads")
TESTS = (*(f"engines/native/test_{name}.py" for name in NATIVE), "engines/test_ops.py", "plan/test_exact.py")


def build_copy(folder: Path, env: dict[str, str]) -> None:
    """Build the extension into a package in `folder`, next to links to everything else of `ptir_tools`.

    `env` has the variables that choose compiler and flags. Raises SystemExit when the extension does not compile.
    """
    package = folder / "ptir_tools"
    shutil.rmtree(package, ignore_errors=True)
    package.mkdir(parents=True)
    for path in [*(ROOT / "ptir_tools").iterdir(), ROOT / "grammars", ROOT / "passes"]:
        if not path.name.startswith(("_native", "__pycache__")):
            (package / path.name).symlink_to(path)
    places = ["--build-lib", str(folder), "--build-temp", str(folder / "objects")]
    subprocess.run([sys.executable, "setup.py", "-q", "build_ext", *places], cwd=ROOT, env={**os.environ, **env}, check=True)
    if not list(package.glob("_native*")):
        raise SystemExit("the extension was not built")


def runtime(name: str) -> str:
    """The libraries that have to be loaded before the interpreter's own: the sanitizer's, and that of C++, whose exceptions it
    watches."""
    compiler = os.environ.get("CC", "gcc").split()
    wanted = ([*compiler, f"-print-file-name={library}"] for library in (FLAGS[name][1], "libstdc++.so.6"))
    return " ".join(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip() for asked in wanted)


def pytest_sessionstart() -> None:
    """Raises SystemExit if the extension that is imported is not the built copy."""
    found = importlib.import_module("ptir_tools._native").__file__ or ""
    if not Path(found).is_relative_to(os.environ[COPY]):
        raise SystemExit(f"the tests would run {found}, which has no sanitizer")


def run_on_copy(folder: Path, python: list[str], env: dict[str, str], args: list[str]) -> int:
    """The exit code of pytest on the package in `folder`. The command `python` starts an interpreter; `args` choose the tests, or
    options for all native tests."""
    path = os.pathsep.join([str(folder), str(ROOT), *filter(None, [env.get("PYTHONPATH")])])
    chosen = args if any((ROOT / a.partition("::")[0]).exists() for a in args) else [*(f"tests/{t}" for t in TESTS), *args]
    options = "-p no:cacheprovider -p tests.sanitize --import-mode=append"  # the copy stays first on the path, also in children
    more = {"PYTHONPATH": path, "PYTHONSAFEPATH": "1", "PYTEST_ADDOPTS": options, "OPENBLAS_NUM_THREADS": "1", COPY: str(folder)}
    return subprocess.run([*python, "-m", "pytest", *chosen], cwd=ROOT, env={**os.environ, **env, **more}, check=False).returncode


def main(args: list[str]) -> int:
    """Build, run, and give the exit code of the tests."""
    if not args or args[0] not in FLAGS:
        raise SystemExit(f"usage: python -m tests.sanitize {'|'.join(FLAGS)} [pytest arguments]")
    name, more = args[0], args[1:]
    folder = ROOT / "build" / "sanitize" / name
    build_copy(folder, {"CFLAGS": f"{FLAGS[name][0]} -g -O1 -fno-omit-frame-pointer", "LDFLAGS": FLAGS[name][0]})
    return run_on_copy(folder, [sys.executable], {**OPTIONS, "LD_PRELOAD": runtime(name)}, ["-x", "-s", *more])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
