"""systemd's unit files as text: escape values, take files apart, know directives by version, and object to what
`systemd-analyze verify` lets pass. Pure."""

from dsv4ctl.unitfile.escape import assignment, command, path, plain, prose, word
from dsv4ctl.unitfile.lint import RUNNERS, SHELLS, START_MARGIN_S, STOP_MARGIN_S, cycles, lint, usurped
from dsv4ctl.unitfile.parse import Entry, Settings, parse, seconds, words
from dsv4ctl.unitfile.since import NEWEST, OLDEST, SINCE, only_known

__all__ = [
    "NEWEST",
    "OLDEST",
    "RUNNERS",
    "SHELLS",
    "SINCE",
    "START_MARGIN_S",
    "STOP_MARGIN_S",
    "Entry",
    "Settings",
    "assignment",
    "command",
    "cycles",
    "lint",
    "only_known",
    "parse",
    "path",
    "plain",
    "prose",
    "seconds",
    "usurped",
    "word",
    "words",
]
