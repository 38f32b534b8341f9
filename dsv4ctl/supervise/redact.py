"""A secret taken out of a stream of bytes, wherever the chunks are cut. Knows no secret but the one it is given."""

import json
from collections.abc import Iterable

MARK = "[api key]"


def spellings(secret: str) -> tuple[str, ...]:
    """The ways in which programs print a string: as it is, and escaped as Python and JSON write it. Longest first."""
    found = {secret, repr(secret)[1:-1], json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    return tuple(sorted(found, key=len, reverse=True)) if secret else ()


def redacted(text: str, secrets: Iterable[str]) -> str:
    """The text without the spellings of a secret."""
    for spelling in secrets:
        text = text.replace(spelling, MARK)
    return text


class Redactor:
    """A stream without the secret. What might be its beginning is held back until the next bytes tell."""

    def __init__(self, secret: str) -> None:
        self._spellings = tuple(spelling.encode() for spelling in spellings(secret))
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        """Take in bytes and give back those that may be shown by now."""
        if not self._spellings:
            return chunk
        text = self._held + chunk
        for spelling in self._spellings:
            text = text.replace(spelling, MARK.encode())
        keep = max(_overlap(text, spelling) for spelling in self._spellings)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def rest(self) -> bytes:
        """What was held back, when nothing follows."""
        held, self._held = self._held, b""
        return held


def _overlap(text: bytes, secret: bytes) -> int:
    """How many bytes at the end of the text are the beginning of the secret."""
    longest = min(len(text), len(secret) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(secret[:size])), 0)
