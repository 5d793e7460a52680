"""ptir: read, verify, optimize, translate, plan and run tensor programs in PTIR, PTO IR, MIND Core IR and Tiny IR."""

__version__ = "0.1.0"
