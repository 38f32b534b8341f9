"""Releases whose attempt came to no end, and files of ours that say nothing, on a real file system."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from dsv4ctl import adopted, installed, maintenance, unfinished
from dsv4ctl.cli.history import command as history
from dsv4ctl.clock import RealClock
from dsv4ctl.generations import Outcome, Verdict
from dsv4ctl.host import Host
from dsv4ctl.model import Instance, Pause
from dsv4ctl.names import MARKER
from dsv4ctl.problems import NotReady, Problem
from dsv4ctl.store import Claim, Paths
from tests.unit.test_releases import generation

CUT = "release 3 was cut short: dsv4ctl deploy   goes on with it"
PROVED = Verdict(outcome=Outcome.PROVED, at=2.0, took_s=1.0, proved_at=2.0)
FAILED = Verdict(outcome=Outcome.FAILED, at=2.0, took_s=1.0)
HOLDER = """
import sys, time
from pathlib import Path
from dsv4ctl.clock import RealClock
from dsv4ctl.store import Claim, Paths, Store
with Store(Paths(Path(sys.argv[1])), RealClock()).lock(Claim(what="deploy")):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A host on which release 3 was begun."""
    found = Host(tmp_path, Paths(tmp_path), RealClock())
    found.store.releases.keep(generation(3))
    return found


def install(host: Host, instance: Instance) -> None:
    """Put a unit file there that names the instance's own file, which is not there."""
    unit = host.paths.units / instance.unit
    unit.parent.mkdir(parents=True, exist_ok=True)
    unit.write_text(f"{MARKER}\nExecStart=x /var/lib/dsv4ctl/instances/{instance.name}-{instance.digest}.json\n")


def test_a_release_without_a_verdict_was_cut_short_and_one_with_a_good_one_was_not(host: Host) -> None:
    assert unfinished.words(host, is_down=True) == unfinished.words(host, is_down=False) == CUT

    host.store.releases.judge(3, PROVED)

    assert unfinished.words(host, is_down=True) == ""


def test_a_rollback_that_was_cut_short_names_the_rollback(host: Host) -> None:
    host.store.releases.keep(replace(generation(4), restores=2))

    assert "dsv4ctl rollback 2   goes on with it" in unfinished.words(host, is_down=True)


def test_a_deploy_that_was_cut_short_goes_on_with_the_options_that_were_typed(host: Host) -> None:
    host.store.releases.keep(replace(generation(4), command="dsv4ctl deploy --mode pd --port 30001"))

    assert "dsv4ctl deploy --mode pd --port 30001   goes on with it" in unfinished.words(host, is_down=True)


def test_a_deploy_under_way_is_not_cut_short_before_it_is_killed(host: Host) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(host.root)], stdout=subprocess.PIPE, text=True) as deploy:
        assert deploy.stdout is not None
        assert deploy.stdout.readline() == "held\n"
        during, work = unfinished.words(host, is_down=True), unfinished.at_work(host)
        deploy.kill()
        deploy.wait()
    # It was made again after a teardown, so that only the lock tells of it.
    host.store.audit.write("teardown", {"status": 0, "steps": []})

    assert during == ""
    assert work is not None
    assert (work.what, work.pid, work.words.startswith("a deploy is at work: ")) == ("deploy", deploy.pid, True)
    assert unfinished.at_work(host) is None
    assert unfinished.words(host, is_down=True) == CUT


def test_a_lock_that_is_held_by_somebody_unknown_is_not_free(host: Host) -> None:
    with host.store.lock(Claim(what="deploy")):
        host.paths.lock.write_text("")
        words, work = unfinished.words(host, is_down=True), unfinished.at_work(host)

    assert words == ""
    assert work is not None
    assert (work.what, work.since, work.pid) == ("", None, os.getpid())
    assert work.words.startswith(f"somebody unknown holds the lock {host.paths.lock} and has not said what for")
    assert unfinished.words(host, is_down=True) == CUT


def test_what_was_taken_down_after_the_cut_is_down_on_purpose_until_the_next_attempt(host: Host) -> None:
    host.store.audit.write("teardown", {"status": 0, "steps": ["stop x"]})
    host.store.audit.write("deploy", {"status": 8, "steps": []})
    assert unfinished.words(host, is_down=True) == "", "a deploy that was refused has done nothing"

    host.store.audit.write("deploy", {"status": 130, "steps": ["stop x"]})
    host.store.audit.write("teardown", {"status": 8, "steps": []})
    assert unfinished.words(host, is_down=True) == CUT, "neither has a teardown"


def test_what_was_taken_down_before_the_attempt_says_nothing_of_it(host: Host) -> None:
    host.store.audit.write("teardown", {"status": 0, "steps": ["stop x"]})
    host.store.releases.keep(replace(generation(4), at=host.clock.wall() + 1))

    assert "release 4 was cut short" in unfinished.words(host, is_down=True)


def test_a_failed_release_is_told_where_it_is_installed_and_down(host: Host) -> None:
    host.store.releases.judge(3, FAILED)
    assert unfinished.words(host, is_down=True) == "", "another one is installed"

    for file in generation(3).release.files:
        path = host.paths.under(file.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text)

    assert "release 3 failed" in unfinished.words(host, is_down=True)
    assert unfinished.words(host, is_down=False) == "", "somebody got it up"


def test_an_adopted_engine_that_ended_is_told_until_something_is_deployed_or_torn_down() -> None:
    both = ["dsv4-adopted-prefill-20002.scope", "dsv4-adopted-decode-20012.scope"]
    trail: list[dict[str, object]] = [
        {"what": "adopt", "status": 0, "steps": [], "adopted": both},
        {"what": "deploy", "status": 3, "steps": []},
    ]

    assert adopted.ended(trail, both) == ()
    assert adopted.ended(trail, both[:1]) == (both[1],)
    assert adopted.ended([*trail, {"what": "teardown", "status": 0, "steps": ["end it"]}], ()) == ()


def test_a_release_that_cannot_be_read_is_told_and_history_does_not_say_that_there_is_none(host: Host) -> None:
    assert unfinished.unreadable(host) == ""
    (host.store.releases.of(3) / "release.json").write_text("{")

    assert unfinished.unreadable(host) == "release 3 cannot be read, and what came of it is not known"
    said = CliRunner().invoke(history, ["--root", str(host.root)], standalone_mode=False).output
    assert said == "note: release 3 cannot be read\n"


def test_a_pause_that_cannot_be_read_is_told(host: Host) -> None:
    assert maintenance.unreadable(host.paths.pause) == ""

    host.paths.pause.write_text("{")
    assert f"{host.paths.pause} cannot be read, so that no pause holds anybody" in maintenance.unreadable(
        host.paths.pause
    )

    maintenance.keep_pause(host.paths, Pause(who="a", reason="b", since=1.0, until=2.0))
    assert maintenance.unreadable(host.paths.pause) == ""


def test_a_unit_that_has_lost_its_file_is_named_and_is_not_nothing(host: Host) -> None:
    with pytest.raises(Problem, match="nothing is deployed here") as caught:
        installed.chosen(host, ())
    assert not isinstance(caught.value, NotReady)

    install(host, generation(3).release.instances[0])

    with pytest.raises(
        NotReady, match=r"nothing is known of dsv4-[\w-]+\.service: cannot read \S+: no such file"
    ) as caught:
        installed.chosen(host, ())
    assert caught.value.hint == "dsv4ctl rollback 3   writes it anew"
