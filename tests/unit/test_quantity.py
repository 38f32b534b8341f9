import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4ctl import quantity


@pytest.mark.parametrize(
    ("written", "count"),
    [
        ("512k", 524288),
        ("512K", 524288),
        ("512Ki", 524288),
        ("512 k", 524288),
        ("1M", 1048576),
        ("1Mi", 1048576),
        ("0.5M", 524288),
        ("1.5k", 1536),
        ("524288", 524288),
        ("524_288", 524288),
        (524288, 524288),
        ("0", 0),
    ],
)
def test_a_count_is_read_with_k_as_1024(written: object, count: int) -> None:
    assert quantity.count(written) == count


@pytest.mark.parametrize(
    "written",
    ["", "k", "512q", "512kb", "-512k", "1.0001k", "1,5k", "0x10", "٣", "9" * 5000, True, 1.5, None, 2**80, []],
)
def test_what_is_no_count_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="not a"):
        quantity.count(written)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [(90, 90), ("90", 90), ("90s", 90), ("15m", 900), ("15min", 900), ("2h", 7200), ("1h 30m", 5400), ("1d", 86400)],
)
def test_a_duration_is_read_in_seconds(written: object, seconds: int) -> None:
    assert quantity.seconds(written) == seconds


@pytest.mark.parametrize(
    "written", ["", " ", "m", "1.5h", "1h30", "-5s", "5 parsecs", "1ms", "9" * 5000, True, 1.5, None]
)
def test_what_is_no_duration_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        quantity.seconds(written)


@given(st.integers(0, 10**9))
def test_a_shown_duration_is_read_back_as_the_same(seconds: int) -> None:
    assert quantity.seconds(quantity.duration_text(seconds)) == seconds


@given(st.integers(0, 2**40))
def test_a_shown_count_begins_with_the_number_and_its_short_form_means_the_same(count: int) -> None:
    number, _, short = quantity.count_text(count).partition(" (")
    assert int(number) == count
    assert not short or quantity.count(short.removesuffix(")")) == count


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        (quantity.count_text(524288), "524288 (512k)"),
        (quantity.count_text(1048576), "1048576 (1M)"),
        (quantity.count_text(1000), "1000"),
        (quantity.count_text(0), "0"),
        (quantity.duration_text(5430), "1h 30m 30s"),
        (quantity.duration_text(0), "0s"),
        (quantity.duration_text(-90), "-1m 30s"),
        (quantity.bytes_text(100 * 1024**3), "100.0 GiB"),
        (quantity.bytes_text(300 * 1024**2), "300.0 MiB"),
    ],
)
def test_numbers_are_shown_with_their_units(shown: str, words: str) -> None:
    assert shown == words
