"""Imports a changed file in place of the one in the tree. Any Python process that finds this folder in PYTHONPATH runs it."""

import os
from importlib import machinery

# The file, as the tree has it, and the one to take instead.
_SOURCE, _CHANGED = os.environ.get("PTIR_MUTANT", os.pathsep).split(os.pathsep)
_get_code = machinery.SourceFileLoader.get_code
_create_module = machinery.ExtensionFileLoader.create_module


def get_code(self, name):
    """The code of a module; never from a cache for the one that is changed. Compiled rule lists are kept next to the changed
    file: those of the tree would hide what a changed compiler of rules does."""
    source = os.path.realpath(self.path)
    if source != _SOURCE and name != "ptir_tools.rewrite.rule_files":
        return _get_code(self, name)
    with open(_CHANGED if source == _SOURCE else source, encoding="utf-8") as file:
        text = file.read()
    if name == "ptir_tools.rewrite.rule_files" and "rewrite" in _SOURCE:
        text = text.replace('os.path.join(os.path.dirname(__file__), "compiled")', repr(os.path.dirname(_CHANGED)))
    return compile(text, self.path, "exec", dont_inherit=True)


def create_module(self, spec):
    """An extension; the changed one in place of the package's."""
    if spec.name == "ptir_tools._native":
        spec.origin = _CHANGED
    return _create_module(self, spec)


if _SOURCE.endswith(".py"):
    machinery.SourceFileLoader.get_code = get_code
elif _SOURCE:
    machinery.ExtensionFileLoader.create_module = create_module
