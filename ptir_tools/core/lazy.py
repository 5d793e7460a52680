"""Modules that cost more than a command: bound at import, executed when first touched."""

import importlib.util
import sys
from typing import Any


def lazy(name: str) -> Any:
    """The module `name`, executed at its first attribute access.

    A module that is not installed raises ModuleNotFoundError here, at once.
    """
    if (loaded := sys.modules.get(name)) is not None:
        return loaded
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    loader = importlib.util.LazyLoader(spec.loader)
    spec.loader = loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    loader.exec_module(module)
    parent, _, child = name.rpartition(".")
    if parent:  # as the import statement does
        setattr(sys.modules[parent], child, module)
    return module
