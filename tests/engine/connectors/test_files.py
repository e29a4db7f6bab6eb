"""Files are read to the last row, from any position, and a bad row says where it is."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from snapshot_engine.connectors.files import ReplacedFile, _filesystem_of, _place_of
from snapshot_engine.connectors.parquet_files import ParquetSource
from snapshot_engine.connectors.text_files import BadRow, CsvSource, JsonLinesSource

SCHEMA = pa.schema({"n": pa.int64(), "city": pa.string()})


def _table(start: int, rows: int) -> pa.Table:
    numbers = range(start, start + rows)
    return pa.table({"n": list(numbers), "city": [f"city {n}" if n % 3 else None for n in numbers]}, SCHEMA)


def _lines(folder: Path, name: str, *lines: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("\n".join(lines))
    return folder / name


# Which files


def test_a_path_may_be_a_file_a_folder_a_glob_or_several(tmp_path: Path) -> None:
    for name in ("a/1.parquet", "a/b/2.parquet", "c/3.parquet", "_hidden/4.parquet", "a/.5.parquet", "a/_SUCCESS"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(_table(0, 1), tmp_path / name)

    def found(*paths: str) -> list[str]:
        files = ParquetSource([str(tmp_path / path) for path in paths]).files
        return [Path(file).name[0] for file in files]

    assert found("") == ["1", "2", "3"]
    assert found("a") == ["1", "2"]
    assert found("a/*.parquet") == ["1"]
    assert found("*/*.parquet") == ["1", "3"]
    assert found("**/[23].parquet") == ["2", "3"]
    assert found("a/1.parquet", "c") == ["1", "3"]
    assert ParquetSource(tmp_path / "c").files == [str(tmp_path / "c/3.parquet")]
    assert ParquetSource((tmp_path / "c").as_uri()).files == [(tmp_path / "c/3.parquet").as_uri()]


@pytest.mark.parametrize("name", ["a b.csv", "50%41.csv", "a#b.csv", "a[1].csv", "Zürich.csv", "plain-1_2.csv"])
def test_a_uri_may_mean_files_of_any_name(tmp_path: Path, reading: Any, name: str) -> None:
    file = _lines(tmp_path / "a folder", name, "n", "1")
    for uri in (file.parent.as_uri(), file.as_uri()):
        source = CsvSource(uri)
        assert reading.source(source) == [{"n": 1}]


def test_the_options_of_a_store_stay_with_its_files() -> None:
    place = "s3://bucket/in?endpoint_override=localhost%3A9000&scheme=http"
    found = _place_of("bucket/in/a b.parquet", place)
    assert found == "s3://bucket/in/a%20b.parquet?endpoint_override=localhost%3A9000&scheme=http"
    filesystem, path = _filesystem_of(found)
    assert (filesystem.type_name, path) == ("s3", "bucket/in/a b.parquet")
    assert filesystem == _filesystem_of(place)[0]


def test_no_file_at_all_is_an_error_when_the_pipeline_is_built(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no file matches .*nowhere"):
        ParquetSource(str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match=r"looking for \*\.csv"):
        CsvSource(str(tmp_path))


def test_all_subtasks_agree_on_the_files_whatever_arrives_later(tmp_path: Path) -> None:
    pq.write_table(_table(0, 1), tmp_path / "1.parquet")
    source = ParquetSource(tmp_path)
    pq.write_table(_table(0, 1), tmp_path / "0.parquet")
    assert pickle.loads(pickle.dumps(source)).splits(2) == [str(tmp_path / "1.parquet")]


def test_a_file_that_disappears_is_named(tmp_path: Path) -> None:
    pq.write_table(_table(0, 1), tmp_path / "1.parquet")
    source = ParquetSource(tmp_path)
    (tmp_path / "1.parquet").unlink()
    with pytest.raises(FileNotFoundError, match=r"1\.parquet is gone.*must stay until the job"):
        source.open(source.splits(1)[0], None)


# Parquet


def test_parquet_is_read_from_any_position(tmp_path: Path, reading: Any) -> None:
    pq.write_table(_table(0, 100), tmp_path / "a.parquet", row_group_size=30)
    pq.write_table(_table(100, 1), tmp_path / "b.parquet")
    pq.write_table(_table(0, 0), tmp_path / "c.parquet")
    source = ParquetSource(tmp_path)
    assert source.schema == SCHEMA
    assert reading.source(source, 7) == _table(0, 101).to_pylist()
    for split in source.splits(1):
        for max_rows in (7, 1000):
            reading.every_position(source, split, max_rows)


def test_parquet_has_no_pauses_between_row_groups(tmp_path: Path) -> None:
    """A source that has nothing right now is left alone for milliseconds: longer than a row group takes."""
    pq.write_table(_table(0, 100), tmp_path / "a.parquet", row_group_size=30)
    source = ParquetSource(tmp_path)
    reader = source.open(source.splits(1)[0], None)
    batches = [reader.read(1000) for _ in range(4)]
    assert [batch and batch.num_rows for batch in batches] == [30, 30, 30, 10]


def test_wide_parquet_rows_come_in_equal_parts_of_few_megabytes(tmp_path: Path) -> None:
    wide = pa.table({"text": ["x" * 500] * 10_000})
    pq.write_table(wide, tmp_path / "a.parquet")
    source = ParquetSource(tmp_path)
    reader = source.open(source.splits(1)[0], None)
    batches = [reader.read(source.batch_rows) for _ in range(3)]
    assert [batch.num_rows for batch in batches] == [3334, 3334, 3332]


def test_parquet_says_how_many_rows_are_left(tmp_path: Path) -> None:
    pq.write_table(_table(0, 100), tmp_path / "a.parquet", row_group_size=30)
    source = ParquetSource(tmp_path)
    reader = source.open(source.splits(1)[0], [1, 5])
    assert reader.lag() == 65
    reader.read(10)
    assert reader.lag() == 55


def test_a_choice_of_columns_is_read_and_cast(tmp_path: Path, reading: Any) -> None:
    pq.write_table(_table(0, 3), tmp_path / "a.parquet")
    source = ParquetSource(tmp_path, pa.schema({"n": pa.float64()}))
    assert reading.source(source) == [{"n": 0.0}, {"n": 1.0}, {"n": 2.0}]


def test_a_parquet_file_that_does_not_fit_is_named(tmp_path: Path, reading: Any) -> None:
    pq.write_table(_table(0, 3), tmp_path / "a.parquet")
    pq.write_table(pa.table({"m": [1]}), tmp_path / "b.parquet")
    with pytest.raises(ValueError, match=r"b\.parquet has no column n, city; it has m"):
        reading.source(ParquetSource(tmp_path))
    with pytest.raises(ValueError, match=r"a\.parquet: row group 0 does not fit the schema"):
        reading.source(ParquetSource(tmp_path / "a.parquet", pa.schema({"city": pa.int64()})))


# JSON lines


def test_json_lines_are_read_from_any_position(tmp_path: Path, reading: Any) -> None:
    rows = [{"n": n, "city": "Zürich\n\u2028" if n % 2 else None} for n in range(50)]
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    lines.insert(10, "")
    file = _lines(tmp_path, "a.jsonl", *lines)
    for text in (file.read_text(), file.read_text() + "\n", file.read_text().replace("\n", "\r\n") + "\r\n\r\n"):
        file.write_bytes(text.encode())
        source = JsonLinesSource(tmp_path)
        assert source.schema == SCHEMA
        assert reading.source(source, 7) == rows
        reading.every_position(source, source.splits(1)[0], 7)


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("schema", [None, SCHEMA], ids=["found", "given"])
@pytest.mark.parametrize("line", ["null", " null", "[]", "7"])
def test_a_json_line_that_is_no_object_is_an_error(
    tmp_path: Path, reading: Any, before: int, schema: pa.Schema | None, line: str
) -> None:
    """Of a block that begins with null Arrow would die."""
    file = _lines(tmp_path, "1.jsonl", *['{"n": 1, "city": null}'] * before, line)
    with pytest.raises(ValueError, match="expected one JSON object") as caught:
        reading.source(JsonLinesSource(file, schema))
    assert str(file) in str(caught.value)
    if schema is not None:
        assert f"{file}:{before + 1}:" in str(caught.value)


def test_a_schema_fills_what_json_lacks_and_ignores_what_it_has_not(tmp_path: Path, reading: Any) -> None:
    _lines(tmp_path, "a.jsonl", '{"n": 1, "more": [1]}', '{"city": "Oslo"}', '{"at": "2024-05-01T10:00:00"}')
    schema = SCHEMA.append(pa.field("at", pa.timestamp("ms")))
    rows = reading.source(JsonLinesSource(tmp_path, schema))
    assert [(row["n"], row["city"]) for row in rows] == [(1, None), (None, "Oslo"), (None, None)]
    assert rows[2]["at"].isoformat() == "2024-05-01T10:00:00"


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ('{"n": "x"}', "n"),
        ('{"n": 1', "JSON parse error"),
        ("garbage", "expected one JSON object, found .garbage."),
        ('{"n": 1.5}', "n"),
    ],
)
def test_a_bad_json_line_is_named_with_its_file_and_number(tmp_path: Path, reading: Any, bad: str, reason: str) -> None:
    good = [json.dumps({"n": n, "city": "a"}) for n in range(30)]
    _lines(tmp_path, "a.jsonl", *good[:20], "", bad, *good[20:])
    with pytest.raises(BadRow, match=rf"a\.jsonl:22: .*{reason}") as caught:
        reading.source(JsonLinesSource(tmp_path, SCHEMA), 13)
    assert bad in str(caught.value)
    assert (Path(caught.value.file).name, caught.value.line) == ("a.jsonl", 22)


# CSV


def test_csv_is_read_from_any_position(tmp_path: Path, reading: Any) -> None:
    rows = [f'{n},"a ""quoted"",\nname {n}"' if n % 4 == 0 else f"{n},plain" for n in range(50)]
    file = _lines(tmp_path, "a.csv", "n,city", *rows)
    expected = [{"n": n, "city": f'a "quoted",\nname {n}' if n % 4 == 0 else "plain"} for n in range(50)]
    for text in (file.read_text(), file.read_text() + "\n"):
        file.write_text(text)
        source = CsvSource(tmp_path)
        assert source.schema == SCHEMA
        assert reading.source(source, 7) == expected
        reading.every_position(source, source.splits(1)[0], 7)


def test_csv_columns_are_found_by_their_header(tmp_path: Path, reading: Any) -> None:
    _lines(tmp_path, "a.csv", "city;other;n", "Oslo;x;1", ";x;")
    source = CsvSource(tmp_path, SCHEMA, delimiter=";")
    assert reading.source(source) == [{"n": 1, "city": "Oslo"}, {"n": None, "city": None}]


def test_the_types_of_a_csv_file_are_found_in_its_only_line(tmp_path: Path, reading: Any) -> None:
    assert reading.source(CsvSource(_lines(tmp_path, "1.csv", "n,city", "7,Rome"))) == [{"n": 7, "city": "Rome"}]


def test_a_quote_inside_a_field_is_a_sign_as_others(tmp_path: Path, reading: Any) -> None:
    rows = ['1,5" disk', '2,"a\nb"', '3,"5"" disk\nand ""more"""', "4,plain", '5,"\n6"', '6,a "b"\t', "7,", '8,""']
    _lines(tmp_path, "a.csv", "n,city", *rows)
    source = CsvSource(tmp_path, SCHEMA)
    names = ['5" disk', "a\nb", '5" disk\nand "more"', "plain", "\n6", 'a "b"\t', None, ""]
    assert [row["city"] for row in reading.source(source, 2)] == names
    reading.every_position(source, source.splits(1)[0], 2)


@pytest.mark.parametrize("schema", [pa.schema({"country": pa.string(), "n": pa.float64()}), None])
def test_only_an_empty_csv_field_is_no_value(tmp_path: Path, reading: Any, schema: pa.Schema | None) -> None:
    names = ["NA", "null", "NaN", "N/A", "", "DE"]
    _lines(tmp_path, "a.csv", "country,n", *(f"{name},1.5" for name in names), "NO,")
    rows = reading.source(CsvSource(tmp_path, schema))
    assert [row["country"] for row in rows] == ["NA", "null", "NaN", "N/A", None, "DE", "NO"]
    assert [row["n"] for row in rows] == [1.5] * 6 + [None]


def test_a_csv_file_whose_lines_end_with_cr_alone_is_refused(tmp_path: Path, reading: Any) -> None:
    (tmp_path / "old.csv").write_bytes(b"n\r1\r2\r")
    with pytest.raises(ValueError, match="lines end with CR alone"):
        reading.source(CsvSource(tmp_path / "old.csv"))


def test_a_csv_file_without_a_column_is_named(tmp_path: Path, reading: Any) -> None:
    _lines(tmp_path, "a.csv", "n,town", "1,Oslo")
    with pytest.raises(ValueError, match=r"a\.csv:1: no column city; the header has n, town"):
        reading.source(CsvSource(tmp_path, SCHEMA))


@pytest.mark.parametrize(("bad", "reason"), [("x,Oslo", "invalid value 'x'"), ("1,Oslo,more", "Expected 2 columns")])
def test_a_bad_csv_line_is_named_with_its_file_and_number(tmp_path: Path, reading: Any, bad: str, reason: str) -> None:
    good = [f'{n},"two\nlines"' for n in range(10)]
    _lines(tmp_path, "a.csv", "n,city", *good, bad, *good)
    with pytest.raises(BadRow, match=rf"a\.csv:22: .*{reason}"):
        reading.source(CsvSource(tmp_path, SCHEMA), 7)


def test_a_text_file_that_shrank_is_reported(tmp_path: Path) -> None:
    file = _lines(tmp_path, "a.jsonl", '{"n": 1, "city": "a"}', '{"n": 2, "city": "a"}')
    source = JsonLinesSource(tmp_path)
    reader = source.open(source.splits(1)[0], None)
    reader.read(10)
    file.write_text("{}")
    with pytest.raises(ValueError, match=r"has 2 bytes, but was read up to byte 22\. It was replaced"):
        source.open(source.splits(1)[0], reader.position())


def test_what_cannot_be_read_is_said_when_the_pipeline_is_built(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(ValueError, match=r"empty\.jsonl is empty: give the source a schema"):
        JsonLinesSource(tmp_path)
    (tmp_path / "a.json.gz").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"compressed text has no positions"):
        JsonLinesSource(tmp_path / "a.json.gz")


# Files that were replaced


@pytest.mark.parametrize("rows", [100, 30], ids=["of the same size", "shorter"])
def test_a_parquet_file_that_was_replaced_is_refused(tmp_path: Path, rows: int) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(_table(0, 100), file, row_group_size=10)
    source = ParquetSource(file)
    reader = source.open(source.files[0], None)
    for _ in range(5):
        reader.read(10)
    position = json.loads(json.dumps(reader.position()))
    pq.write_table(_table(1000, rows), file, row_group_size=10)
    with pytest.raises(ReplacedFile, match=r"its footer is not the one.*Bring back the file as it was"):
        source.open(source.files[0], position)


@pytest.mark.parametrize("position", [[4, 0], [1, 11], [3, 1]])
def test_a_parquet_position_of_an_earlier_version_is_refused_only_where_the_file_has_none(
    tmp_path: Path, reading: Any, position: list[int]
) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(_table(0, 30), file, row_group_size=10)
    source = ParquetSource(file)
    with pytest.raises(ReplacedFile, match=r"row \d+ of row group \d, which it does not have"):
        source.open(source.files[0], position)
    assert [row["n"] for row in reading.all(source.open(source.files[0], [2, 8]))] == [28, 29]
    assert reading.all(source.open(source.files[0], [3, 0])) == []


def test_a_text_file_that_was_replaced_is_refused(tmp_path: Path, reading: Any) -> None:
    file = _lines(tmp_path, "a.csv", "n", *map(str, range(10, 40)), "")
    source = CsvSource(file)
    reader = source.open(source.files[0], None)
    reader.read(5)
    position = json.loads(json.dumps(reader.position()))
    _lines(tmp_path, "a.csv", "n", *map(str, range(50, 80)), "")
    with pytest.raises(ReplacedFile, match=r"before byte 17 \(line 7\) is not what was read there"):
        source.open(source.files[0], position)
    assert reading.all(source.open(source.files[0], position[:2]))[0] == {"n": 55}  # of an earlier version
    _lines(tmp_path, "a.csv", "n", *map(str, range(10, 50)), "")  # it has grown
    assert reading.all(source.open(source.files[0], position))[-1] == {"n": 49}
