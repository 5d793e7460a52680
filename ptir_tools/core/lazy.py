"""Modules that cost more than a command: bound at import, executed when first touched."""

import importlib
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from typing import Any


def lazy(name: str) -> Any:
    """The module `name`, executed at its first attribute access; the packages that hold it are not executed before, either.

    A module that is not installed raises ModuleNotFoundError here, at once.
    """
    if (loaded := sys.modules.get(name)) is not None:
        return loaded
    parent, _, child = name.rpartition(".")
    package = lazy(parent) if parent else None
    spec = _find(name, package)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    spec.loader = importlib.util.LazyLoader(_AfterParent(spec.loader, parent) if parent else spec.loader)  # type: ignore[arg-type]
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    if package is not None:  # as the import statement does
        setattr(package, child, module)
    return module


def _find(name: str, package: Any) -> ModuleSpec | None:
    """The spec of `name`. Unlike importlib.util.find_spec, this does not execute the package."""
    path = None if package is None else object.__getattribute__(package, "__spec__").submodule_search_locations
    return next((s for f in sys.meta_path if (s := f.find_spec(name, path)) is not None), None)


class _Once:
    """Finds what is loaded already. `import numpy.linalg` asks the lazy numpy for its path, which executes numpy, which loads
    numpy.linalg; the import statement would not notice, and load it a second time."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """A spec that gives the loaded module; None when there is none, and for a reload (`target`)."""
        if target is not None or (module := sys.modules.get(fullname)) is None:
            return None
        return ModuleSpec(fullname, _Loaded(module), is_package=hasattr(module, "__path__"))  # type: ignore[arg-type]


class _Loaded:
    """A loader of a module that is there."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.spec = module.__spec__

    def create_module(self, spec: ModuleSpec) -> Any:
        return self.module

    def exec_module(self, module: Any) -> None:
        module.__spec__ = self.spec


sys.meta_path.insert(0, _Once())


class _AfterParent:
    """A loader that executes a module only after its package, as the import statement does."""

    def __init__(self, loader: Any, parent: str) -> None:
        self.loader = loader
        self.parent = parent

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def exec_module(self, module: Any) -> None:
        importlib.import_module(self.parent)
        self.loader.exec_module(module)
