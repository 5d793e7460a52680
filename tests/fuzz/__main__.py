"""`python -m tests.fuzz readers|commands|models|clients|artifacts [--seed N] [--count N] [--minutes N]`.

`… show N` prints input number N.

`python -m tests.fuzz guided FORM [arguments of libFuzzer]` lets atheris (extra `fuzz`) look for inputs that reach new code.
"""

from __future__ import annotations

import argparse
import sys

from .harness import TRIALS, command_line, fuzz
from .mutations import READABLE, mutated


def main() -> int:
    """Exit code 1 when there are faults."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("what", choices=[*TRIALS, "show", "guided"])
    parser.add_argument("which", nargs="*", help="show: the number of an input; guided: a format, then what libFuzzer takes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--minutes", type=float)
    asked, more = parser.parse_known_args()
    if asked.what == "show":
        form, text = mutated(int(asked.which[0]))
        print(f"{form}: ptir {' '.join(command_line(int(asked.which[0]), form))}", file=sys.stderr)
        sys.stdout.buffer.write(text)
        return 0
    if asked.what == "guided":
        from .guided import run

        return run(asked.which[0] if asked.which else READABLE[0], [*asked.which[1:], *more])
    found = fuzz(asked.what, asked.seed, asked.count, asked.minutes)
    print(f"{found.inputs} inputs in {found.seconds:.0f} s, {found.inputs / max(found.seconds, 1e-9):.0f} a second")
    for said, seeds in found.faults.items():
        print(f"{len(seeds):>6}  {said}  ({', '.join(map(str, seeds[:5]))})")
    return int(bool(found.faults))


if __name__ == "__main__":
    sys.exit(main())
