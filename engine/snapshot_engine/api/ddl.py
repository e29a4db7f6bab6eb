"""Schemas written as text, in the words of Spark SQL: `"city string, amount double, tags array<string>"`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches

import pyarrow as pa

_SIMPLE = {
    "boolean": pa.bool_(),
    "bool": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("ms"),
}
_TOKEN = re.compile(r"\s*(?:([A-Za-z_][A-Za-z0-9_]*|`[^`]+`)|([0-9]+)|([<>(),:]))")


def parse_ddl(text: str) -> pa.Schema:
    """Raises ValueError with the place in `text` that was not understood."""
    parser = _Parser(text)
    fields = parser.fields(end=None)
    names = [field.name for field in fields]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise ValueError(f"schema {text!r} has column {doubled[0]!r} twice")
    return pa.schema(fields)


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokenize(text))
        self._next = 0

    def fields(self, end: str | None) -> list[pa.Field]:
        fields = [self._field()]
        while self._take(","):
            fields.append(self._field())
        if end is None:
            if self._peek() is not None:
                self._fail("a comma or the end")
        else:
            self._expect(end)
        return fields

    def _field(self) -> pa.Field:
        name = self._word("a column's name").strip("`")
        self._take(":")
        return pa.field(name, self._type())

    def _type(self) -> pa.DataType:
        word = self._word("a type").lower()
        if word in _SIMPLE:
            return _SIMPLE[word]
        if word == "decimal":
            return self._decimal()
        if word == "array":
            return pa.list_(self._inside())
        if word == "map":
            self._expect("<")
            key = self._type()
            self._expect(",")
            value = self._type()
            self._expect(">")
            return pa.map_(key, value)
        if word == "struct":
            self._expect("<")
            return pa.struct(self.fields(end=">"))
        raise ValueError(f"schema {self._text!r} names an unknown type {word!r}{_suggest(word)}")

    def _inside(self) -> pa.DataType:
        self._expect("<")
        inner = self._type()
        self._expect(">")
        return inner

    def _decimal(self) -> pa.DataType:
        if not self._take("("):
            return pa.decimal128(10, 0)
        precision = self._number()
        scale = self._number() if self._take(",") else 0
        self._expect(")")
        return pa.decimal128(precision, scale)

    def _peek(self) -> str | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _take(self, token: str) -> bool:
        if self._peek() != token:
            return False
        self._next += 1
        return True

    def _expect(self, token: str) -> None:
        if not self._take(token):
            self._fail(repr(token))

    def _word(self, what: str) -> str:
        token = self._peek()
        if token is None or not re.match(r"[A-Za-z_`]", token):
            self._fail(what)
        self._next += 1
        return str(token)

    def _number(self) -> int:
        token = self._peek()
        if token is None or not token.isdigit():
            self._fail("a number")
        self._next += 1
        return int(str(token))

    def _fail(self, expected: str) -> None:
        found = self._peek()
        got = "the end" if found is None else repr(found)
        raise ValueError(
            f'schema {self._text!r}: expected {expected}, found {got}; write it like "city string, amount double"'
        )


def _tokenize(text: str) -> Iterator[str]:
    at = 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"schema {text!r}: {text[at:].strip()[0]!r} does not belong into a schema")
        yield match.group(match.lastindex or 0)
        at = match.end()


def _suggest(word: str) -> str:
    known = [*_SIMPLE, "decimal", "array", "map", "struct"]
    close = get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f" (types: {', '.join(known)})"
