"""Reads a StreamingJob manifest; every mistake is reported with its line, its field, what was found and what
is allowed."""

import copy
import difflib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from snapshot_engine.wire.spec import ENTRYPOINT_PATTERN, KIND, StreamingJob

Location = tuple[str | int, ...]


class ManifestError(ValueError):
    """A manifest that cannot be used; the text says where and why, one line per problem."""

    def __init__(self, origin: str, problems: list[str]) -> None:
        self.origin = origin
        self.problems = problems
        super().__init__("\n".join(f"{origin}{problem}" for problem in problems))


class _Loader(yaml.SafeLoader):
    """Says where a value is that looks like a date or a number and is none, such as 2024-13-45, and where a field is
    given twice, of which YAML would take the last one without a word.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: dict[str, int] = {}
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                line = key.start_mark.line + 1
                if key.value in seen:
                    problem = f"{key.value} is given twice, here and in line {seen[key.value]}"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                seen[key.value] = line
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except ValueError as error:
            problem = f"{node.value} cannot be read: {error}; put it in quotes if it is text"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from error


def load_manifest(
    path: Path | str, overrides: Iterable[str] = (), context: Mapping[str, bool] | None = None
) -> StreamingJob:
    """The one StreamingJob in a YAML file, with ``path=value`` overrides applied; raises ManifestError."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ManifestError(f"{file}: ", [f"cannot be read: {error.strerror or error}"]) from error
    except UnicodeDecodeError as error:
        raise ManifestError(f"{file}: ", [f"is not UTF-8 text: byte {error.start} cannot be read"]) from error
    return parse_manifest(text, str(file), overrides, context)


def parse_manifest(
    text: str,
    origin: str = "manifest",
    overrides: Iterable[str] = (),
    context: Mapping[str, bool] | None = None,
) -> StreamingJob:
    try:
        nodes = [node for node in yaml.compose_all(text, Loader=yaml.SafeLoader) if node is not None]
        for node in nodes:
            _refuse_circles(node, origin)
        documents = [document for document in yaml.load_all(text, Loader=_Loader) if document is not None]
    except yaml.YAMLError as error:
        raise ManifestError(f"{origin}", [f":{_yaml_problem(error)}"]) from error
    index = _index_of_job(documents, origin)
    overrides = list(overrides)
    document = apply_overrides(documents[index], overrides)
    return validate_job(document, origin, nodes[index], overrides, context)


def _refuse_circles(node: yaml.Node, origin: str, above: tuple[yaml.Node, ...] = ()) -> None:
    if any(node is each for each in above):
        line = node.start_mark.line + 1
        raise ManifestError(f"{origin}", [f":{line}: what is written here holds itself, by an alias to its own anchor"])
    if isinstance(node, yaml.CollectionNode):
        for child in node.value:
            for part in child if isinstance(child, tuple) else (child,):
                _refuse_circles(part, origin, (*above, node))


def validate_job(
    document: Mapping[str, Any],
    origin: str,
    node: yaml.Node | None = None,
    overrides: Iterable[str] = (),
    context: Mapping[str, bool] | None = None,
) -> StreamingJob:
    """The typed job of a plain document. For messages: ``node`` has the lines, if the document came from text, and
    ``overrides`` are what was not in it."""
    try:
        return StreamingJob.model_validate(document, context=context)
    except ValidationError as error:
        details = error.errors(include_url=False)
        places = [(_override_of(detail["loc"], overrides), _line_of(node, detail["loc"]), detail) for detail in details]
        places.sort(key=lambda place: (place[0] is not None, place[1] or 0))
        raise ManifestError(origin, [_describe(*place) for place in places]) from error


def apply_overrides(document: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """A copy of the document with each ``spec.parallelism=4`` set; values are read as YAML."""
    changed = copy.deepcopy(dict(document))
    for override in overrides:
        dotted, equals, value = override.partition("=")
        if not equals or not dotted.strip("."):
            raise ManifestError("", [f'--set {override}: write it as path=value, such as "spec.parallelism=4"'])
        _set(changed, dotted.split("."), _override_value(value), override)
    return changed


def _set(document: dict[str, Any], keys: list[str], value: Any, override: str) -> None:
    for depth, key in enumerate(keys[:-1], start=1):
        child = document.setdefault(key, {})
        if not isinstance(child, dict):
            where = ".".join(keys[:depth])
            raise ManifestError("", [f"--set {override}: {where} is {child!r}, which has no fields to set"])
        document = child
    document[keys[-1]] = value


def _override_value(text: str) -> Any:
    try:
        return yaml.load(text, Loader=_Loader) if text else ""
    except yaml.YAMLError:
        return text


def _index_of_job(documents: list[Any], origin: str) -> int:
    jobs = [i for i, document in enumerate(documents) if isinstance(document, dict) and document.get("kind") == KIND]
    if len(jobs) == 1:
        return jobs[0]
    if len(jobs) > 1:
        raise ManifestError(f"{origin}: ", [f"holds {len(jobs)} StreamingJobs; put each in a file of its own"])
    if len(documents) == 1 and isinstance(documents[0], dict) and "kind" not in documents[0]:
        return 0  # its missing kind is then reported like any other mistake, or taken as the default
    kinds = ", ".join(str(d.get("kind")) if isinstance(d, dict) else type(d).__name__ for d in documents) or "nothing"
    raise ManifestError(f"{origin}: ", [f"holds no StreamingJob (kind: {KIND}); found {kinds}"])


def _yaml_problem(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    return f"{mark.line + 1}: not valid YAML: {problem}" if mark else f" not valid YAML: {problem}"


def _line_of(node: yaml.Node | None, location: Location) -> int | None:
    """The line of the deepest part of the location that is in the text."""
    line = None
    for part in location:
        if isinstance(node, yaml.MappingNode):
            match = next(((key, value) for key, value in node.value if key.value == str(part)), None)
            if match is None:
                break
            line, node = match[0].start_mark.line + 1, match[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            break
    return line


def _override_of(location: Location, overrides: Iterable[str]) -> str | None:
    """The last ``path=value`` that set what is at the location, or something above or below it."""
    field = [str(part) for part in location]
    for override in reversed(list(overrides)):
        path = override.partition("=")[0].split(".")
        if path[: len(field)] == field[: len(path)]:
            return override
    return None


def _describe(override: str | None, line: int | None, detail: ErrorDetails) -> str:
    field = ".".join(str(part) for part in detail["loc"]) or "the document"
    prefix = f" (--set {override}): " if override else f":{line}: " if line else ": "
    return f"{prefix}{field}: {_explain(detail)}"


def _explain(detail: ErrorDetails) -> str:
    found = _shorten(detail["input"])
    context = detail.get("ctx", {})
    match detail["type"]:
        case "extra_forbidden":
            return f"unknown field{_suggestion(detail['loc'])}"
        case "missing":
            return "is required and missing"
        case "enum" | "literal_error":
            allowed = str(context["expected"]).replace("'", "")
            return f"found {found}; allowed: {allowed}"
        case "value_error":
            return str(context["error"])
        case "model_type" | "model_attributes_type":
            model = _model_at(detail["loc"])
            fields = f" with fields such as {', '.join(_fields_of(model)[:4])}" if model else ""
            return f"found {found}; it must be an object{fields}"
        case "string_pattern_mismatch" if context["pattern"] == ENTRYPOINT_PATTERN:
            return f"found {found}; it must be module:function or file.py:function"
        case "string_pattern_mismatch":
            return f"found {found}; it must match {context['pattern']}"
        case _:
            return f"found {found}; {_lower_first(detail['msg'])}"


def _suggestion(location: Location) -> str:
    model = _model_at(location[:-1])
    if model is None:
        return ""
    allowed = _fields_of(model)
    close = difflib.get_close_matches(str(location[-1]), allowed, n=1, cutoff=0.6)
    hint = f'; did you mean "{close[0]}"?' if close else ""
    return f"{hint} (allowed: {', '.join(allowed)})"


def _fields_of(model: type[BaseModel]) -> list[str]:
    return [info.alias or name for name, info in model.model_fields.items() if not info.exclude]


def _model_at(location: Location) -> type[BaseModel] | None:
    """The model whose fields live at a location of the document."""
    model: type[BaseModel] | None = StreamingJob
    for part in location:
        if model is None:
            return None
        fields = {info.alias or name: info for name, info in model.model_fields.items()}
        info = fields.get(str(part))
        model = _model_in(info.annotation) if info else None
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def _shorten(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}…"


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]
