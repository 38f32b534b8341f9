"""Times on a command line."""

import click
import pytest

from dsv4ctl.cli.seconds import Seconds


@pytest.mark.parametrize("given", ["nan", "inf", "1e400", "-1", "-inf", "1e9", "soon"])
def test_what_no_clock_reaches_is_no_time(given: str) -> None:
    with pytest.raises(click.BadParameter):
        Seconds().convert(given, None, None)


@pytest.mark.parametrize(
    ("given", "said"),
    [("soon", "'soon' is no number of seconds, such as 90"), ("-1", "-1 is no number of seconds from 0 to 31622400")],
)
def test_what_is_no_time_is_told_in_words(given: str, said: str) -> None:
    with pytest.raises(click.BadParameter, match=said):
        Seconds().convert(given, None, None)


def test_only_a_wait_is_for_ever_and_only_when_nothing_is_said() -> None:
    assert Seconds(forever=True).convert("inf", None, None) == float("inf")
    with pytest.raises(click.BadParameter):
        Seconds(forever=True).convert("nan", None, None)
    assert Seconds(1).convert("1.5", None, None) == 1.5
