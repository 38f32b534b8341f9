"""What `who` shows of a holder."""

import json
from dataclasses import replace

from dsv4ctl import aiming, screen_who
from dsv4ctl.aiming import Aim, Clearing
from dsv4ctl.blame import Blame, Suspect, Verdict
from dsv4ctl.free import Found
from dsv4ctl.inquiry import Wanted
from dsv4ctl.model import HostView, Keeper, PortView
from tests.unit.blame.forests import process


def test_a_key_on_a_command_line_is_shown_to_nobody() -> None:
    command = "python -m sglang.launch_server --api-key sk-1 --admin-api-key=sk-2 --port 30000"
    holder = process(1000, 200, command=command)
    suspect = Suspect(verdict=Verdict.STRAY, process=holder, holds=("listens on 127.0.0.1:30000",), signs=())
    found = Found(blame=Blame(suspects=(suspect,)))
    who = Clearing(aim=Aim(), instances=(), view=HostView(), wanted=Wanted(), found=found, steps=())

    for said in (screen_who.text(who), json.dumps(screen_who.as_json(who))):
        assert "sk-" not in said
        assert "--port 30000" in said


def clearing_of(*suspects: Suspect, ports: frozenset[int] = frozenset()) -> Clearing:
    found = Found(blame=Blame(suspects=suspects))
    return Clearing(aim=Aim(), instances=(), view=HostView(), wanted=Wanted(ports=ports), found=found, steps=())


def foreign(pid: int, *ports: int, asked: int, command: str = "") -> Suspect:
    """Somebody who listens on ports, one of which was asked for."""
    return Suspect(
        verdict=Verdict.FOREIGN,
        process=process(pid, 200, command=command),
        holds=(*(f"listens on 127.0.0.1:{port}" for port in ports), "holds 1.0 GiB of GPU 0"),
        signs=("no sign says that it is an engine",),
        ports=frozenset({asked}) & frozenset(ports),
    )


def test_only_what_was_asked_for_is_shown() -> None:
    all_of_it = clearing_of(
        foreign(1000, 30001, asked=30001), foreign(1001, 20001, asked=20001), ports=frozenset({30001, 20001})
    )

    said = screen_who.text(aiming.only(replace(all_of_it, aim=Aim(ports=(30001,)))))

    assert "pid 1000 " in said
    assert "pid 1001 " not in said
    assert "port 20001" not in said


def test_a_foreign_holder_is_ended_by_a_teardown_that_is_for_its_port_alone() -> None:
    assert "it would stay: dsv4ctl teardown --port 30001 --evict 1000" in screen_who.text(
        clearing_of(foreign(1000, 30001, asked=30001))
    )


def test_a_port_without_a_listener_is_said_to_be_free_to_pass_or_somebodys() -> None:
    seen = {
        30001: PortView(port=30001),
        30002: PortView(port=30002, blocked="ended connections are in TIME_WAIT", kept_by=Keeper.KERNEL),
        30003: PortView(port=30003, blocked="somebody has it bound", kept_by=Keeper.UNKNOWN),
    }
    who = replace(clearing_of(ports=frozenset(seen)), view=HostView(ports=seen))

    said = screen_who.text(who).splitlines()
    kept = json.loads(json.dumps(screen_who.as_json(who)))["kept"]

    assert said == [
        "port 30001: nobody listens",
        "port 30002: ended connections are in TIME_WAIT",
        "port 30003: somebody has it bound",
    ]
    assert {port: one["by"] for port, one in kept.items()} == {"30001": "nobody", "30002": "kernel", "30003": "unknown"}


def test_of_many_sockets_only_those_asked_for_are_named() -> None:
    many = foreign(1000, 30001, 41001, 41002, 41003, asked=30001)
    rank = foreign(1001, 41004, 41005, 41006, asked=30001)

    said = screen_who.text(clearing_of(many, rank))

    assert "listens on 127.0.0.1:30001 and holds 1.0 GiB of GPU 0 and listens on 3 more" in said
    assert "holds 1.0 GiB of GPU 0 and listens on 3 ports" in said
    assert "41" not in said


def test_a_command_line_that_is_cut_says_so() -> None:
    said = screen_who.text(clearing_of(foreign(1000, 30001, asked=30001, command="python " + "x" * 200)))

    line = next(line for line in said.splitlines() if "command: " in line)
    assert line.endswith("x…")
