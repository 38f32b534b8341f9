"""What an engine's --help says of its options. Knows how argparse lays out its help and nothing of SGLang."""

import re

from dsv4ctl.problems import EngineMissing

# argparse indents an entry by two columns and everything that explains it by more, so an option that is only
# mentioned in an explanation never stands at this column. Checked with the help of SGLang 0.5.3 and 0.5.23.
_ENTRY = re.compile(r"^  (-\S.*)$", re.MULTILINE)
_OPTION = re.compile(r"(?:^|, )(-[^\s,=\[{]+)")
_CHOICES = re.compile(r"\{([^{}]*)\}")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def parse_help(text: str) -> tuple[frozenset[str], dict[str, tuple[str, ...]]]:
    """The exact option strings of an argparse help text, and the choices of each option that lists some.

    Options that the program hides from its help (argparse.SUPPRESS) are not among them. Raises EngineMissing when
    the text holds no option at all.
    """
    options: set[str] = set()
    choices: dict[str, tuple[str, ...]] = {}
    for entry in _ENTRY.findall(_COLOUR.sub("", text)):
        # Two blanks end the names and begin the explanation, where both fit in one line.
        names = entry.split("  ", 1)[0]
        found = _OPTION.findall(names)
        options.update(found)
        if listed := _CHOICES.search(names):
            choices.update(dict.fromkeys(found, tuple(listed[1].split(","))))
    if not options:
        raise EngineMissing(
            "cannot read the engine's options: its --help lists none",
            hint="run the engine's python with -m sglang.launch_server --help and look at what it prints",
        )
    return frozenset(options), choices
