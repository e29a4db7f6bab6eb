"""Finding the pipeline function that a manifest names.

Code that lies beside the manifest exists on this machine only. Its modules are listed by `local_modules`, so
that what is shipped to the slots carries them by value; code that is installed is shipped by name.
"""

from __future__ import annotations

import importlib
import importlib.util
import linecache
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from snapshot_engine.graph.call_site import told_to_the_user
from snapshot_engine.wire.spec import PipelineSpec

INLINE_MODULE = "inline_pipeline"
_ENGINE = __name__.partition(".")[0]


class LoadError(Exception):
    """The pipeline function could not be had; says what was tried."""


@dataclass(frozen=True)
class LoadedPipeline:
    function: Callable[..., Any]
    origin: str
    """Where it was found, as the manifest says it."""
    module: str | None = None
    """The name of the module that was made of a file or a text; None where it was imported by name."""
    roots: tuple[Path, ...] = ()
    """The folders whose modules exist on this machine only."""

    def local_modules(self) -> tuple[str, ...]:
        """The names of modules that exist on this machine only, of all that are imported by now.

        To be asked when the function has been called: it may import more.
        """
        return _local_modules(self.roots, *([self.module] if self.module else []))


def load_pipeline(spec: PipelineSpec, folder: Path | None = None, config_map: str | None = None) -> LoadedPipeline:
    """`folder` is the manifest's own; `config_map` the text of the key that `spec.configMap` names."""
    if spec.entrypoint is not None:
        place, _, function = spec.entrypoint.rpartition(":")
        if place.endswith(".py") or "/" in place:
            return _from_file(place, function, folder)
        return _from_module(place, function, spec.path, folder)
    if spec.source is not None:
        return _from_text(spec.source, spec.function, "pipeline.source")
    if config_map is None:
        name = spec.config_map.name if spec.config_map else "?"
        raise LoadError(
            f"the pipeline is in ConfigMap {name!r}, which only exists on Kubernetes; "
            "for an embedded run give pipeline.entrypoint or pipeline.source"
        )
    return _from_text(config_map, spec.function, "pipeline.configMap")


def _from_module(name: str, function: str, path: str | None, folder: Path | None) -> LoadedPipeline:
    roots = _import_roots(path, folder)
    with _importing_from(roots):
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
                raise LoadError(_import_failed(f"module {name!r}", error)) from error
            looked = ", ".join(str(root) for root in roots) or "the installed packages"
            raise LoadError(
                f"there is no module {error.name!r}, which pipeline.entrypoint names; looked in {looked}"
                + (" and the installed packages" if roots else "")
                + "; set pipeline.path to its directory, or write the entrypoint as file.py:function"
            ) from None
        except BaseException as error:
            raise LoadError(_import_failed(f"module {name!r}", error)) from error
    return LoadedPipeline(_function_of(module, function, name), name, roots=tuple(roots))


def _from_file(file: str, function: str, folder: Path | None) -> LoadedPipeline:
    path = (folder or Path.cwd()) / file
    if not path.is_file():
        raise LoadError(_no_such_file(file, path))
    path = path.resolve()
    name = _module_name(path)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with _importing_from([path.parent]), _registered(name, module):
        try:
            spec.loader.exec_module(module)
        except BaseException as error:
            raise LoadError(_import_failed(str(file), error)) from error
    return LoadedPipeline(_function_of(module, function, file), file, name, (path.parent,))


def _from_text(text: str, function: str, origin: str) -> LoadedPipeline:
    file = f"<{origin}>"
    module = types.ModuleType(INLINE_MODULE)
    module.__file__ = file
    # So that tracebacks show the user's lines, which are in no file.
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    with _registered(INLINE_MODULE, module):
        try:
            exec(compile(text, file, "exec"), module.__dict__)
        except BaseException as error:
            raise LoadError(_import_failed(origin, error)) from error
    return LoadedPipeline(_function_of(module, function, origin), origin, INLINE_MODULE)


def _import_roots(path: str | None, folder: Path | None) -> list[Path]:
    base = folder or Path.cwd()
    if path is None:
        return [base.resolve()] if folder is not None else []
    root = (base / path).resolve()
    if not root.is_dir():
        raise LoadError(f"pipeline.path {path!r} is not a directory (looked for {root})")
    return [root]


@contextmanager
def _importing_from(roots: list[Path]) -> Iterator[None]:
    """The roots stay on the path: a pipeline may import more when it is called."""
    for root in roots:
        if str(root) not in sys.path:
            sys.path.insert(0, str(root))
    importlib.invalidate_caches()
    yield


@contextmanager
def _registered(name: str, module: types.ModuleType) -> Iterator[None]:
    """Known by its name while it runs (dataclasses look their module up), and from then on if it succeeds."""
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        yield
    except BaseException:
        if before is None:
            sys.modules.pop(name, None)
        else:
            sys.modules[name] = before
        raise


def _module_name(path: Path) -> str:
    """The file's stem, unless that is the name of something else: `json.py` must not hide Python's own."""
    stem = path.stem if path.stem.isidentifier() else "pipeline"
    known = sys.modules.get(stem)
    if known is None and importlib.util.find_spec(stem) is None:
        return stem
    if known is not None and getattr(known, "__file__", None) == str(path):
        return stem
    return f"pipeline_{stem}"


def _local_modules(roots: Iterable[Path], *names: str) -> tuple[str, ...]:
    found = dict.fromkeys(names)
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name != "__main__" and file and any(_lies_below(file, root) for root in roots):
            found[name] = None
    return tuple(name for name in found if name.partition(".")[0] != _ENGINE)


def _lies_below(file: str, root: Path) -> bool:
    """Installed packages are everywhere, even where a virtual environment lies beside the manifest."""
    return file.startswith(f"{root}/") and "site-packages" not in file


def _function_of(module: types.ModuleType, name: str, origin: str) -> Callable[..., Any]:
    function = getattr(module, name, None)
    if callable(function):
        return function  # type: ignore[no-any-return]
    if function is not None:
        raise LoadError(f"{name!r} in {origin} is {function!r}, not a function")
    there = [
        other
        for other, value in vars(module).items()
        if isinstance(value, types.FunctionType) and value.__module__ == module.__name__ and not other.startswith("_")
    ]
    close = get_close_matches(name, there, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise LoadError(f"{origin} has no function {name!r}{hint} (functions: {', '.join(there) or 'none'})")


def _no_such_file(file: str, path: Path) -> str:
    beside = sorted(other.name for other in path.parent.glob("*.py")) if path.parent.is_dir() else []
    there = f"; Python files there: {', '.join(beside)}" if beside else ""
    return f"there is no file {file!r}, which pipeline.entrypoint names (looked for {path}){there}"


def _import_failed(what: str, error: BaseException) -> str:
    return f"{what} could not be imported: {told_to_the_user(error)}"
