"""What pyproject.toml cannot say: how to compile the kernels and make the parse tables."""

import hashlib
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
NATIVE = Path("ptir_tools/native")  # relative, as setuptools wants it: a build runs where this file is
OBJECTS = Path(os.environ.get("PTIR_OBJECTS") or HERE / "build" / "objects")  # what was compiled is kept
RULE_FILES = HERE / "ptir_tools" / "rewrite" / "compiled"
TABLES = "from ptir_tools import grammars; grammars.write_tables()"
RULES = """
import importlib, pkgutil, ptir_tools.dialects as dialects
for module in pkgutil.walk_packages(dialects.__path__, dialects.__name__ + "."):
    if ".rewrites" in module.name:
        importlib.import_module(module.name)  # which writes the files of its rule lists
"""


class BuildTables(build_py):
    """Writes grammars/*.tables and the files of rule lists first. A failure fails the build."""

    def run(self) -> None:
        writing = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        shutil.rmtree(RULE_FILES, ignore_errors=True)  # other ones may be of other sources
        for script in (TABLES, RULES):
            subprocess.run([sys.executable, "-c", script], cwd=HERE, env=writing, check=True)
        super().run()


class BuildKernels(build_ext):
    """Compiles as many files at once as there are cores: a few of them take most of the time. Equal work is done once."""

    def build_extension(self, ext: Extension) -> None:
        compile_all = self.compiler.compile
        (Path(self.build_temp) / NATIVE).mkdir(parents=True, exist_ok=True)
        common = self.depends_on(ext)

        def compiled(source: str, args: tuple[object, ...], options: dict[str, object]) -> list[str]:
            key = hashlib.sha256(common + Path(source).read_bytes()).hexdigest()[:20]
            kept = OBJECTS / f"{Path(source).stem}-{key}.o"
            if not kept.exists():
                (made,) = compile_all([source], *args, **options)
                OBJECTS.mkdir(parents=True, exist_ok=True)
                whole = kept.with_suffix(f".{os.getpid()}")
                shutil.copyfile(made, whole)
                whole.replace(kept)
            os.utime(kept)
            return [str(kept)]

        def at_once(sources: list[str], *args: object, **options: object) -> list[str]:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                made = pool.map(lambda source: compiled(source, args, options), sources)
                return [name for names in made for name in names]

        self.compiler.compile = at_once
        super().build_extension(ext)
        by_age = sorted(OBJECTS.glob("*.o"), key=lambda path: path.stat().st_mtime)
        for old in by_age[: -4 * len(ext.sources)]:
            old.unlink(missing_ok=True)

    def depends_on(self, ext: Extension) -> bytes:
        """What every object file depends on besides its source: the compiler, its options, Python, the headers."""
        command = [*getattr(self.compiler, "compiler_so", [])]
        try:
            version = subprocess.run([*command[:1], "--version"], capture_output=True, check=False).stdout
        except OSError:  # there is no compiler, or it is found in another way
            version = b""
        facts = (sys.version, command, version, ext.extra_compile_args, ext.define_macros, ext.include_dirs)
        return repr(facts).encode() + b"".join(Path(name).read_bytes() for name in ext.depends)


LONGEST = ("isa_avx2.c", "isa_avx512.c", "isa_baseline.c")  # to compile: they come first

# No -march=native: a wheel runs anywhere, and the kernels choose their instructions when they are loaded. The floating-point
# flags give up errno and exception flags, never a value.
NO_CALLS = "-fno-tree-loop-distribute-patterns"  # a loop over a few floats is not worth a call
UNIX = ["-std=gnu11", "-Wall", "-Wextra", "-Wno-psabi", "-fwrapv", "-fno-math-errno", "-fno-trapping-math", NO_CALLS]
ASKED = os.environ.get("CFLAGS", "").split()
UNIX += [] if "-O1" in ASKED else ["-O3"]
UNIX += [] if "-g" in ASKED else ["-g0"]  # the interpreter's own flags ask for debugging information, a fifth of the time
FLAGS = ["/O2", "/std:c11"] if sys.platform == "win32" else UNIX

setup(
    cmdclass={"build_py": BuildTables, "build_ext": BuildKernels},
    ext_modules=[
        Extension(
            "ptir_tools._native",
            sources=sorted((path.as_posix() for path in NATIVE.glob("*.c")), key=lambda name: (not name.endswith(LONGEST), name)),
            depends=sorted(path.as_posix() for end in ("h", "inl") for path in NATIVE.glob(f"*.{end}")),
            include_dirs=[NATIVE.as_posix()],
            extra_compile_args=FLAGS,
            extra_link_args=[] if sys.platform == "win32" else ["-pthread"],
            define_macros=[("Py_LIMITED_API", "0x030B0000")],
            py_limited_api=True,
            optional=True,  # no compiler, no kernels: the NumPy engine serves
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
