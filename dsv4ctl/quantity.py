"""Numbers with units, as people write them and as they are shown. Knows nothing but arithmetic."""

import re

_COUNT = re.compile(r"([0-9][0-9_]{0,17}(?:\.[0-9]{1,9})?) ?(?:([kKmM])i?)?")
_PART = re.compile(r"([0-9]{1,9})(d|h|min|m|s)")
_MULTIPLES = {"": 1, "k": 1024, "m": 1024 * 1024}
_SECONDS = {"d": 86400, "h": 3600, "min": 60, "m": 60, "s": 1}
# An integer above this cannot be a count of anything here, and Python refuses to print one of more than 4300 digits.
_LARGEST = 2**62


def count(value: object) -> int:
    """A count of tokens or requests: 524288, "524288" or "512k". k is 1024, M is 1024 * 1024; SGLang's own k is 1000.

    Raises ValueError for anything else, "1.0001k" included: a count is whole.
    """
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST:
        return value
    match = _COUNT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("not a count such as 524288, 512k or 1M")
    whole, _, part = match[1].replace("_", "").partition(".")
    scale: int = 10 ** len(part)
    exact, rest = divmod(int(whole + part) * _MULTIPLES[(match[2] or "").lower()], scale)
    if rest:
        raise ValueError("not a whole count")
    return exact


def seconds(value: object) -> int:
    """A duration in whole seconds: 90, "90", "90s", "15m", "2h" or "1h 30m".

    Raises ValueError for anything else.
    """
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST:
        return value
    text = value.replace(" ", "") if isinstance(value, str) else ""
    if re.fullmatch(r"[0-9]{1,9}", text):
        return int(text)
    if not re.fullmatch(rf"(?:{_PART.pattern})+", text):
        raise ValueError("not a duration such as 90, 90s, 15m or 2h")
    return sum(int(number) * _SECONDS[unit] for number, unit in _PART.findall(text))


def count_text(number: int) -> str:
    """A count as a number, with the short form behind it where there is one: 524288 (512k)."""
    for unit, multiple in (("M", 1024 * 1024), ("k", 1024)):
        if number and number % multiple == 0:
            return f"{number} ({number // multiple}{unit})"
    return str(number)


def duration_text(whole_seconds: int) -> str:
    """A duration in the form that `seconds` reads: 5430 is "1h 30m 30s"."""
    parts = []
    rest = abs(whole_seconds)
    for unit in ("d", "h", "m", "s"):
        number, rest = divmod(rest, _SECONDS[unit])
        if number:
            parts.append(f"{number}{unit}")
    return ("-" if whole_seconds < 0 else "") + (" ".join(parts) or "0s")


def bytes_text(number: int) -> str:
    """A number of bytes in GiB, or in MiB below one GiB, with one decimal."""
    if abs(number) >= 1024**3:
        return f"{number / 1024**3:.1f} GiB"
    return f"{number / 1024**2:.1f} MiB"
