"""What the program says of itself: --help, the README and the exit statuses agree."""

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest

from dsv4ctl import config
from dsv4ctl.cli import COMMANDS
from dsv4ctl.problems import Problem, Status

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
DSV4CTL = Path(sys.executable).parent / "dsv4ctl"


def command(name: str) -> click.Command:
    found = import_module(f"dsv4ctl.cli.{name}").command
    assert isinstance(found, click.Command)
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_the_command_says(name: str) -> None:
    assert (command(name).name, command(name).get_short_help_str(200)) == (name, COMMANDS[name])


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_stands_in_the_readme(name: str) -> None:
    assert f"dsv4ctl {name}" in README


def test_the_readme_names_no_option_that_no_command_has() -> None:
    known = {"--help", "--version"}
    for name in COMMANDS:
        commands = [command(name), *getattr(command(name), "commands", {}).values()]
        known |= {o for c in commands for p in c.params for o in (*p.opts, *p.secondary_opts)}

    named = {o for line in re.findall(r"dsv4ctl [a-z].*", README) for o in re.findall(r"(?<![\w-])--[a-z][\w-]*", line)}

    assert named - known == set()


def test_every_exit_status_stands_in_the_readme() -> None:
    stated = {int(n) for n in re.findall(r"^\| (\d+) \|", README, re.MULTILINE)}

    assert stated == {int(s) for s in Status}


def test_every_kind_of_problem_stands_in_the_readme_beside_its_status() -> None:
    family: list[type[Problem]] = [Problem, *Problem.__subclasses__()]
    stated = {
        kind: int(n)
        for n, kinds in re.findall(r"^\| (\d+) \|.*\| (.*) \|$", README, re.M)
        for kind in kinds.split(", ")
    }

    assert {kind: n for kind, n in stated.items() if kind} == {f"`{one.kind}`": int(one.status) for one in family}


def options() -> list[click.Option]:
    commands = [one for name in COMMANDS for one in (command(name), *getattr(command(name), "commands", {}).values())]
    return [one for each in commands for one in each.params if isinstance(one, click.Option)]


def test_every_option_with_a_value_names_it_and_one_that_may_be_given_again_says_so() -> None:
    valued = [one for one in options() if not one.is_flag and one.name != "version"]

    unnamed = {one.opts[0] for one in valued if one.metavar is None and not isinstance(one.type, click.Choice)}
    assert unnamed == set()
    assert {one.opts[0] for one in valued if one.multiple and "may be given again" not in (one.help or "")} == set()


def test_the_help_of_a_group_cuts_no_sentence() -> None:
    said = subprocess.run([DSV4CTL, "config", "--help"], capture_output=True, text=True, check=True).stdout

    assert not any(line.endswith(("…", "...")) for line in said.splitlines()[1:])


def test_help_comes_within_150_ms() -> None:
    # Processor time, which is all of it on a host that has nothing else to do, and the same on one that has.
    took = []
    for _ in range(5):
        before = os.times()
        subprocess.run([DSV4CTL, "--help"], capture_output=True, check=True)
        after = os.times()
        took.append(after.children_user + after.children_system - before.children_user - before.children_system)

    assert min(took) < 0.150


def test_status_loads_none_of_the_libraries_that_it_does_not_need() -> None:
    """What reads a config, renders units or draws costs more than all that status does."""
    script = "import sys, dsv4ctl.cli.status, dsv4ctl.report, dsv4ctl.screen; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()

    assert {"pydantic", "jinja2", "rich", "pynvml"} & set(loaded) == set()


def test_the_config_that_the_readme_explains_is_a_good_one() -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)

    effective = config.load(block, {}, path="README.md")

    assert (effective.spec.memory.context_length, effective.spec.limits.stall_s) == (524288, 900)
