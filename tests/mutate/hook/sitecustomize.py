"""Imports a changed file in place of the one in the tree. Any Python process that finds this folder in PYTHONPATH runs it."""

import os
from importlib import machinery

# The file, as the tree has it, and the one to take instead.
_SOURCE, _CHANGED = os.environ.get("PTIR_MUTANT", os.pathsep).split(os.pathsep)
_get_code = machinery.SourceFileLoader.get_code
_create_module = machinery.ExtensionFileLoader.create_module


def get_code(self, name):
    """The code of a module; never from a cache for the one that is changed."""
    if os.path.realpath(self.path) != _SOURCE:
        return _get_code(self, name)
    with open(_CHANGED, encoding="utf-8") as file:
        return compile(file.read(), self.path, "exec", dont_inherit=True)


def create_module(self, spec):
    """An extension; the changed one in place of the package's."""
    if spec.name == "ptir_tools._native":
        spec.origin = _CHANGED
    return _create_module(self, spec)


if _SOURCE.endswith(".py"):
    machinery.SourceFileLoader.get_code = get_code
elif _SOURCE:
    machinery.ExtensionFileLoader.create_module = create_module
