"""What pyproject.toml cannot say: how to compile the kernels and make the parse tables."""

import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
TABLES = "from ptir_tools import grammars; grammars.write_tables()"


class BuildTables(build_py):
    """Writes grammars/*.tables first; without them every load computes its table."""

    def run(self) -> None:
        subprocess.run([sys.executable, "-c", TABLES], cwd=HERE, check=False)
        super().run()


# No -march=native: a wheel runs anywhere, and the kernels choose their instructions when they are loaded. The floating-point
# flags give up errno and exception flags, never a value.
UNIX = ["-O3", "-std=gnu11", "-Wall", "-Wextra", "-Wno-psabi", "-fwrapv", "-fno-math-errno", "-fno-trapping-math"]
FLAGS = ["/O2", "/std:c11"] if sys.platform == "win32" else UNIX

setup(
    cmdclass={"build_py": BuildTables},
    ext_modules=[
        Extension(
            "ptir_tools._native",
            sources=[f"ptir_tools/native/{name}.c" for name in ("module", "checks", "kernels", "chain", "phases", "gemm", "moves", "placement", "fit")],
            depends=[f"ptir_tools/native/{name}.h" for name in ("kernels", "chain", "common", "functions", "narrow", "phases", "quick", "turn", "placement")],
            include_dirs=["ptir_tools/native"],
            extra_compile_args=FLAGS,
            define_macros=[("Py_LIMITED_API", "0x030B0000")],
            py_limited_api=True,
            optional=True,  # no compiler, no kernels: the NumPy engine serves
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
