"""What pyproject.toml cannot say: how to compile the kernels and make the parse tables."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
NATIVE = Path("ptir_tools/native")  # relative, as setuptools wants it: a build runs where this file is
TABLES = "from ptir_tools import grammars; grammars.write_tables()"
RULES = """
import importlib, pkgutil, ptir_tools.dialects as dialects
for module in pkgutil.walk_packages(dialects.__path__, dialects.__name__ + "."):
    if ".rewrites" in module.name:
        importlib.import_module(module.name)  # which writes the files of its rule lists
"""


class BuildTables(build_py):
    """Writes grammars/*.tables and the files of rule lists first; without them they are computed at load."""

    def run(self) -> None:
        writing = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        for script in (TABLES, RULES):
            subprocess.run([sys.executable, "-c", script], cwd=HERE, env=writing, check=False)
        super().run()


class BuildKernels(build_ext):
    """Compiles as many files at once as there are cores: a few of them take most of the time."""

    def build_extension(self, ext: Extension) -> None:
        compile_all = self.compiler.compile
        (Path(self.build_temp) / NATIVE).mkdir(parents=True, exist_ok=True)

        def at_once(sources: list[str], *args: object, **options: object) -> list[str]:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                made = pool.map(lambda source: compile_all([source], *args, **options), sources)
                return [name for names in made for name in names]

        self.compiler.compile = at_once
        super().build_extension(ext)


LONGEST = ("isa_avx2.c", "isa_avx512.c", "isa_baseline.c")  # to compile: they come first

# No -march=native: a wheel runs anywhere, and the kernels choose their instructions when they are loaded. The floating-point
# flags give up errno and exception flags, never a value.
NO_CALLS = "-fno-tree-loop-distribute-patterns"  # a loop over a few floats is not worth a call
UNIX = ["-O3", "-std=gnu11", "-Wall", "-Wextra", "-Wno-psabi", "-fwrapv", "-fno-math-errno", "-fno-trapping-math", NO_CALLS]
# The interpreter's own flags ask for debugging information, which takes a fifth of the time.
UNIX += [] if "-g" in os.environ.get("CFLAGS", "").split() else ["-g0"]
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
