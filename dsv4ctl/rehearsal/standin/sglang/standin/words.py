"""Log lines in the real engine's format: everything to stderr, the access log of the HTTP server to stdout."""

import os
import time


def stamp(rank: str = "") -> str:
    """`[2026-11-29 17:28:10 TP0]`; milliseconds with SGLANG_LOG_MS=1."""
    now = time.time()
    fraction = f".{int(now * 1000) % 1000:03d}" if os.environ.get("SGLANG_LOG_MS", "").lower() in ("1", "true") else ""
    return f"[{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(now))}{fraction}{rank}]"


def say(text: str, rank: str = "") -> None:
    """One line of SGLang's own logger."""
    write(2, f"{stamp(rank)} {text}\n")


def uvicorn(text: str, level: str = "INFO") -> None:
    """One line of uvicorn's logger."""
    write(2, f"{stamp()} {level + ':':<9} {text}\n")


def access(text: str) -> None:
    """One line of uvicorn's access log."""
    write(1, f"{stamp()} {'INFO:':<9} {text}\n")


def write(stream: int, text: str) -> None:
    """Write all of a text at once, so that the lines of several processes do not mix; a closed reader is no error."""
    rest = text.encode()
    while rest:
        try:
            rest = rest[os.write(stream, rest) :]
        except OSError:
            return
