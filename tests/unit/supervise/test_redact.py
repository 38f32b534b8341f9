"""The key never reaches the journal, wherever the chunks are cut and however it is escaped."""

import itertools
import json

from hypothesis import given
from hypothesis import strategies as st

from dsv4ctl.supervise.redact import MARK, Redactor, redacted, spellings

KEYS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=4, max_size=24)


def stream(secret: str, chunks: list[bytes]) -> bytes:
    redactor = Redactor(secret)
    return b"".join([*(redactor.feed(chunk) for chunk in chunks), redactor.rest()])


def cut(text: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted({place % (len(text) + 1) for place in places}), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(edges)]


@given(KEYS, st.lists(st.text(max_size=8), min_size=1, max_size=5), st.lists(st.integers(0, 10_000), max_size=12))
def test_a_key_is_gone_wherever_the_stream_is_cut(key: str, between: list[str], places: list[int]) -> None:
    text = key.join(between).encode()
    assert key.encode() not in stream(key, cut(text, places)).replace(MARK.encode(), b"\0")


@given(st.binary(max_size=200), st.lists(st.integers(0, 10_000), max_size=12))
def test_what_is_no_key_passes_unchanged(text: bytes, places: list[int]) -> None:
    assert stream("\x00a key that is not in there\x00", cut(text, places)) == text


def test_a_key_is_found_as_python_and_json_write_it() -> None:
    key = 'it\'s \\ a "key"'
    line = f"ServerArgs(api_key={key!r}) {json.dumps({'api_key': key})} {key}"
    shown = redacted(line, spellings(key))
    assert shown == f'ServerArgs(api_key={repr(key)[0]}{MARK}{repr(key)[0]}) {{"api_key": "{MARK}"}} {MARK}'
    assert stream(key, [line[:20].encode(), line[20:].encode()]) == shown.encode()


def test_a_line_that_ends_is_never_held_back() -> None:
    assert Redactor("secret-key").feed(b"loading secret\n") == b"loading secret\n"


def test_the_beginning_of_a_key_waits_for_the_rest() -> None:
    redactor = Redactor("secret-key")
    assert redactor.feed(b"key=secr") == b"key="
    assert redactor.feed(b"et-keys\n") == MARK.encode() + b"s\n"


def test_without_a_key_nothing_is_looked_for() -> None:
    assert stream("", [b"a", b"b"]) == b"ab"
