"""`synth.pareto` is a package and, as in the API, a function: a module made callable."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType


class _CallableModule(ModuleType):
    """Calling the module calls the function of the same name in `synth.api`."""

    def __call__(self, *args: object, **options: object) -> object:
        return getattr(import_module("synth.api"), self.__name__.rpartition(".")[2])(*args, **options)


def make_callable(name: str) -> None:
    """Make the module `name` callable; to be called from within it with ``__name__``."""
    sys.modules[name].__class__ = _CallableModule
