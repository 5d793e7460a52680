"""`python -m ptir_tools`: the command line."""

import sys

from ptir_tools.cli import main

if __name__ == "__main__":
    sys.exit(main())
