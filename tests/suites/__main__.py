"""`python -m tests.suites NAME`: runs a suite and prints its counts; exit code 1 when something is wrong."""

from __future__ import annotations

import argparse
import importlib
import sys

SUITES = ("jax", "jax_functions", "modules", "onnx", "stablehlo", "torch", "world")


def main() -> int:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m tests.suites", description=__doc__)
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("folder", metavar="DIR", nargs="?", default="", help="where a suite is that is in no package")
    parser.add_argument("-k", metavar="TEXT", default="", help="only cases whose names have it")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every N-th case")
    parser.add_argument("-v", "--verbose", action="store_true", help="name the cases that are refused")
    asked = parser.parse_args()
    suite = importlib.import_module(
        f"tests.suites.{asked.suite}_nodes" if asked.suite == "onnx" else f"tests.suites.{asked.suite}"
    )
    report = suite.run(asked.k, asked.every, **({"folder": asked.folder} if asked.folder else {}))
    print("\n".join(report.lines(asked.verbose)))
    return 1 if report.wrong or report.errors else 0


if __name__ == "__main__":
    sys.exit(main())
