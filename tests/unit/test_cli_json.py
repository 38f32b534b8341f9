"""--json: exactly one object on stdout, whatever becomes of the command; the words for people stay on stderr."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from dsv4ctl import cli, problems
from dsv4ctl.cli.reply import Reply, json_option
from dsv4ctl.outcome import Outcome, plain
from dsv4ctl.problems import Busy, Problem, Status
from tests.commands import HAVING_JSON

DSV4CTL = Path(sys.executable).parent / "dsv4ctl"


# What each refuses on a host where nothing is, by the kind of the problem.
REFUSED: dict[tuple[str, ...], tuple[tuple[str, ...], str]] = {
    ("deploy",): (("--port", "80"), "config"),
    ("plan",): (("--config", "/nope"), "option"),
    ("status",): (("--role", "decode"), "host"),
    ("probe",): ((), "host"),
    ("history",): (("7",), "option"),
    ("diff",): ((), "host"),
    ("rollback",): (("--dry-run",), "host"),
    ("logs",): ((), "host"),
    ("teardown",): (("--gpus", "many"), "usage"),
    ("pause",): (("--for", "2h", "--reason", "a fan"), "host"),
    ("resume",): ((), "host"),
    ("memory",): (("--gpu", "abacus"), "config"),
    ("who",): (("gpu:many",), "usage"),
    ("render",): (("--prot", "1"), "usage"),
    ("topology",): (("--mode", "nonsense"), "config"),
    ("config", "show"): (("--port", "80"), "config"),
    ("init",): (("--sideways",), "usage"),
    ("adopt",): (("--api-key-file", "here"), "usage"),
}


def objects(out: str) -> list[Any]:
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.parametrize("words", HAVING_JSON, ids=" ".join)
def test_what_is_refused_is_one_object_with_the_problem_as_values(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more, kind = REFUSED[words]

    status = cli.run([*words, *more, "--root", str(tmp_path), "--json"])

    said = capsys.readouterr()
    (found,) = objects(said.out)
    problem = found["problem"]
    assert (problem["kind"], problem["status"]) == (kind, status)
    assert set(problem) == {"kind", "status", "message", "hint", "details"}
    assert problem["message"].splitlines()[0] in said.err


@pytest.mark.parametrize("words", HAVING_JSON, ids=" ".join)
@pytest.mark.parametrize("wrong", ["--nonsense", "--json=1"])
def test_a_wrong_command_line_is_one_object_too(
    words: tuple[str, ...], wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([*words, "--json", wrong]) == Status.USAGE

    said = capsys.readouterr()
    (found,) = objects(said.out)
    assert found["problem"]["kind"] == "usage"
    assert found["problem"]["hint"] in (f"dsv4ctl {' '.join(words)} --help", "dsv4ctl --help")
    assert f"Error: {found['problem']['message']}" in said.err


@pytest.mark.parametrize("argv", [["--json"], ["nonsense", "--json"], ["rehearse", "--json"], ["stop", "--json"]])
def test_what_is_no_command_is_one_object_too(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(argv) == Status.USAGE
    assert objects(capsys.readouterr().out)[0]["problem"]["status"] == Status.USAGE


def test_all_problems_of_a_config_are_a_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "dsv4.toml"
    file.write_text("port = 80\nprot = 1\n")

    cli.run(["deploy", "--config", str(file), "--json"])

    first, second = objects(capsys.readouterr().out)[0]["problem"]["details"]["messages"]
    assert first.startswith(f"{file}:1: port: cannot use 80")
    assert second.startswith(f"{file}:2: prot: ")


def test_a_value_that_looks_like_the_option_asks_for_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["config", "show", "--config", "--json"]) == Status.USAGE
    assert capsys.readouterr().out == ""


def test_help_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["deploy", "--json", "--help"]) == Status.OK
    assert capsys.readouterr().out.startswith("Usage: dsv4ctl deploy")


@click.group()
def some() -> None:
    """Commands that find something, and then this happens to them."""


@some.command()
@click.argument("how")
@json_option("")
def find(how: str, reply: Reply) -> int:
    reply.add({"found": 1})
    click.echo("words that somebody forgot")
    match how:
        case "fault":
            raise ZeroDivisionError(how)
        case "ctrl-c":
            raise KeyboardInterrupt
        case "abort":
            raise click.Abort
        case "refusal":
            raise Busy("cannot go on", hint="wait", details={"holder": {"pid": 7}})
    reply.add({"more": 2})
    return Status.CHANGES


@some.command()
@json_option("")
def follow(reply: Reply) -> int:
    reply.line({"line": 1})
    reply.line({"line": 2})
    raise Problem("cannot follow")


@pytest.mark.parametrize(
    ("how", "kind", "status"),
    [
        ("refusal", "busy", Status.BUSY),
        ("ctrl-c", "interrupted", Status.INTERRUPTED),
        ("abort", "interrupted", Status.INTERRUPTED),
        ("fault", "fault", Status.BUG),
    ],
)
def test_what_was_found_until_then_stands_beside_the_problem(
    how: str, kind: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["find", how, "--json"], some) == status

    said = capsys.readouterr()
    (found,) = objects(said.out)
    assert (found["found"], found["problem"]["kind"], "more" in found) == (1, kind, False)
    assert "words that somebody forgot" in said.err
    for file in filter(None, [found["problem"]["details"].get("report")]):
        assert "ZeroDivisionError" in Path(file).read_text()
        Path(file).unlink()


def test_where_all_is_well_no_problem_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["find", "well", "--json"], some) == Status.CHANGES
    assert objects(capsys.readouterr().out) == [{"found": 1, "more": 2}]


def test_without_the_option_there_is_no_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["find", "refusal"], some) == Status.BUSY
    assert capsys.readouterr().out == "words that somebody forgot\n"


def test_of_a_stream_each_line_is_an_object_and_the_last_how_it_failed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["follow", "--json"], some) == Status.HOST
    first, second, last = objects(capsys.readouterr().out)
    assert (first, second, last["problem"]["message"]) == ({"line": 1}, {"line": 2}, "cannot follow")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_is_interrupted_says_so_as_its_last_object(number: int, tmp_path: Path) -> None:
    argv: list[str | Path] = [DSV4CTL, "status", "--watch", "--json", "--root", tmp_path]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        first = json.loads(watching.stdout.readline())
        os.kill(watching.pid, number)
        rest, _ = watching.communicate(timeout=60)

    assert first["rows"] == []
    assert objects(rest)[-1]["problem"]["kind"] == "interrupted"
    assert watching.returncode == Status.INTERRUPTED


@pytest.mark.parametrize(("file", "status"), [("/dev/null", Status.HOST), ("/", Status.USAGE)])
def test_an_outcome_that_cannot_be_written_is_no_fault_of_ours(tmp_path: Path, file: str, status: int) -> None:
    argv: list[str | Path] = [DSV4CTL, "config", "show", "--root", tmp_path, "--json", "--config", file]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, check=False)

    assert done.returncode == status
    assert "cannot write the outcome to stdout: no space left on device" in done.stderr
    assert "fault" not in done.stderr


def family(kind: type[Problem] = Problem) -> Iterator[type[Problem]]:
    yield kind
    for one in kind.__subclasses__():
        yield from family(one)


def test_every_member_of_the_family_has_a_kind_of_its_own() -> None:
    kinds = [one.kind for one in family() if one.__module__ == problems.__name__]

    assert len(set(kinds)) == len(kinds)


def test_what_json_has_no_word_for_is_text() -> None:
    assert plain({"a": frozenset({2, 1}), "b": Path("/x"), "c": float("inf"), "d": (Status.OK, b"")}) == {
        "a": [1, 2],
        "b": "/x",
        "c": None,
        "d": [0, "b''"],
    }


def test_a_problem_tells_the_other_one_that_it_came_from() -> None:
    try:
        try:
            raise problems.NotReady("cannot bring it up", details={"unit": "dsv4-server.service"})
        except Problem as cause:
            raise problems.Reverted("it serves again") from cause
    except Problem as problem:
        said = json.loads(Outcome(problem=problem).text())["problem"]

    assert said["kind"] == "reverted"
    assert said["details"]["because"]["details"] == {"unit": "dsv4-server.service"}
