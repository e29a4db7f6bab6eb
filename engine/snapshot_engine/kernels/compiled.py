"""How a loop becomes a kernel: declared types, compiled once, kept in numba's cache beside the file.

Numba notices a changed file, but not a changed function that the file took from another one. So an `inner`
function is used in its own file only; the exceptions (`mixing.py`, `memory.py`) hold what never changes.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numba
from numba import types

P = ParamSpec("P")
R = TypeVar("R")

_kernels: list[Kernel] = []

Signature = tuple[Any, ...]


def read(dtype: Any, dimensions: int = 1) -> Any:
    """The type of an array that a kernel only reads: buffers of Arrow are not writable."""
    return types.Array(dtype, dimensions, "C", readonly=True)


def write(dtype: Any, dimensions: int = 1) -> Any:
    return types.Array(dtype, dimensions, "C")


class Kernel:
    """A compiled function that is loaded at its first call, or by `preload`."""

    __slots__ = ("_dispatcher", "_run", "name", "signatures")

    def __init__(self, function: Callable[..., Any], signatures: tuple[Signature, ...]) -> None:
        self.name = function.__name__
        self.signatures = signatures
        # Without the interpreter lock, so that snapshots are written by another thread meanwhile.
        self._dispatcher = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
        self._run: Callable[..., Any] = self._load_and_run

    def __call__(self, *args: Any) -> Any:
        return self._run(*args)

    def load(self) -> None:
        """Take the compiled code from the cache, or compile it and put it there."""
        if self._run is self._dispatcher:
            return
        for signature in self.signatures:
            self._dispatcher.compile(signature)
        self._dispatcher.disable_compile()
        self._run = self._dispatcher

    def _load_and_run(self, *args: Any) -> Any:
        self.load()
        return self._run(*args)


def kernel(*signatures: Signature) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Compile the function for exactly these argument types; any others are a TypeError when it is called."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        compiled = Kernel(function, signatures)
        _kernels.append(compiled)
        return cast(Callable[P, R], compiled)

    return decorate


def inner(function: Callable[P, R]) -> Callable[P, R]:
    """A function that kernels of the same file call. It becomes part of them: a call would cost more than most do."""
    return cast(Callable[P, R], numba.njit(cache=True, error_model="numpy", forceinline=True)(function))


def preload() -> int:
    """Load every kernel into this process, for those forked from it as well; returns how many there are."""
    package = importlib.import_module("snapshot_engine.kernels")
    for module in pkgutil.iter_modules(package.__path__):
        if module.name != "__main__":
            importlib.import_module(f"{package.__name__}.{module.name}")
    for each in _kernels:
        each.load()
    return len(_kernels)
