"""`python -m tests.suites NAME`: runs a suite and prints its counts; exit code 1 when something is wrong."""

from __future__ import annotations

import argparse
import importlib
import sys

SUITES = ("hub", "jax", "jax_functions", "modules", "onnx", "pto-isa", "ptoas", "stablehlo", "torch", "world")


def main() -> int:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m tests.suites", description=__doc__)
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("folder", metavar="DIR", nargs="?", default="", help="where a suite is that is in no package")
    parser.add_argument("-k", metavar="TEXT", default="", help="only cases whose names have it")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every N-th case")
    parser.add_argument("-v", "--verbose", action="store_true", help="name the cases that are refused")
    parser.add_argument("--cc", metavar="COMMAND", default="", help="pto-isa: builds {binary} of {source} with the simulator")
    parser.add_argument("--static-cc", metavar="COMMAND", default="", help="pto-isa: checks {source} with the chip's headers")
    parser.add_argument("--assembler", metavar="COMMAND", default="", help="ptoas: writes C++ of {source} to {output}")
    parser.add_argument("--target", choices=("a3", "a5"), default="a3", help="pto-isa: the target")
    asked = parser.parse_args()
    module = {"onnx": "onnx_nodes", "pto-isa": "pto_isa"}.get(asked.suite, asked.suite)
    suite = importlib.import_module(f"tests.suites.{module}")
    more = {"folder": asked.folder} if asked.folder else {}
    if asked.suite == "pto-isa":
        more = {"cc": asked.cc, "static_cc": asked.static_cc, "target": asked.target}
    if asked.suite == "ptoas":
        more["assembler"] = asked.assembler
    report = suite.run(asked.k, asked.every, **more)
    print("\n".join(report.lines(asked.verbose)))
    return 1 if report.wrong or report.errors else 0


if __name__ == "__main__":
    sys.exit(main())
