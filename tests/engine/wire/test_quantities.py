import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_engine.wire.quantities import format_bytes, format_duration, parse_bytes, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("10s", 10),
        ("1m", 60),
        ("1m30s", 90),
        ("1.5h", 5400),
        ("48h", 172800),
        ("0s", 0),
        ("100ms", 0.1),
    ],
)
def test_a_duration_is_read_as_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "s", "10 s", "-1s", "10S", "1m 30s", 10, 1.5, None, True, "10s\n", "2d"])
def test_what_is_no_duration_is_refused_with_examples(text: object) -> None:
    with pytest.raises(ValueError, match=r'such as "500ms", "10s" or "1m"'):
        parse_duration(text)  # type: ignore[arg-type]


@given(st.integers(min_value=0, max_value=10**9))
def test_a_duration_survives_being_written_and_read(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds / 1000)) == pytest.approx(milliseconds / 1000)


@pytest.mark.parametrize(
    ("text", "size"), [("2Gi", 2**31), ("512Mi", 2**29), ("1.5Ki", 1536), ("1M", 10**6), ("2G", 2 * 10**9)]
)
def test_a_size_is_read_as_bytes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "1", "1073741824", "2GB", "Gi", "-1Gi", "2 Gi", 2, None, "2Gi\n"])
def test_what_is_no_size_is_refused_with_examples(text: object) -> None:
    with pytest.raises(ValueError, match=r'such as "1Gi" or "2Gi"'):
        parse_bytes(text)  # type: ignore[arg-type]


@given(st.integers(min_value=0, max_value=2**50))
def test_a_size_survives_being_written_and_read(size: int) -> None:
    assert parse_bytes(format_bytes(size)) == size
