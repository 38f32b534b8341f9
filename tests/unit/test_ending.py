"""Trees of real processes are ended, by looking again alone where no systemd makes scopes."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from dsv4ctl import census, ending, procs
from dsv4ctl.blame import Tree
from dsv4ctl.clock import RealClock, until
from dsv4ctl.free import EndTree
from dsv4ctl.model import Identity
from dsv4ctl.problems import LeftOver

Start = Callable[..., subprocess.Popen[str]]

FAMILY = """
import os, signal, time
{first}
for number in range(3):
    if not os.fork():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if number:
            os.setsid()
        time.sleep(60)
        os._exit(0)
print("up", flush=True)
time.sleep(60)
"""


LISTENER = """
import socket, time
server = socket.create_server(("127.0.0.1", 0))
print("up", server.getsockname()[1], sep="\\n", flush=True)
time.sleep(60)
"""


def tree_of(pid: int) -> Tree:
    everyone = census.everything()
    members = (everyone[pid].identity, *procs.descendants(pid))
    return Tree(root=everyone[pid], members=members, unit="", holds=(), signs=())


def step(tree: Tree, term_s: float) -> EndTree:
    return EndTree(tree=tree, term_s=term_s, reason="it is tested")


@pytest.mark.parametrize(("first", "term_s"), [("", 5.0), ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", 0.3)])
def test_a_tree_is_ended_whole_whether_it_heeds_sigterm_or_not(start: Start, first: str, term_s: float) -> None:
    process = start(FAMILY.format(first=first))
    assert until(lambda: len(procs.descendants(process.pid)) == 3 or None, RealClock(), 5, 0.01)
    tree = tree_of(process.pid)
    seen: list[ending.Ending] = []

    ending.end([step(tree, term_s)], RealClock(), seen.append)

    assert not [i for i in tree.members if procs.alive(i)]
    assert seen[-1].left == ()


def test_trees_are_ended_side_by_side_with_one_limit_for_all(start: Start) -> None:
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    roots = [start(FAMILY.format(first=deaf)) for _ in range(2)]
    assert until(lambda: all(len(procs.descendants(r.pid)) == 3 for r in roots) or None, RealClock(), 5, 0.01)
    trees = [tree_of(root.pid) for root in roots]
    seen: list[ending.Ending] = []

    ending.end([step(tree, 0.3) for tree in trees], RealClock(), seen.append)

    assert {*seen[0].left} == {*trees[0].members, *trees[1].members}
    assert not seen[0].killed
    assert not [i for tree in trees for i in tree.members if procs.alive(i)]
    assert all(len(now.left) in (0, 8) for now in seen if not now.killed)


def test_a_tree_that_is_deaf_is_killed_even_where_no_time_is_given_for_it_to_go(start: Start) -> None:
    """Or where a busy host takes longer for one look than the whole limit."""
    process = start(FAMILY.format(first="signal.signal(signal.SIGTERM, signal.SIG_IGN)"))
    assert until(lambda: len(procs.descendants(process.pid)) == 3 or None, RealClock(), 5, 0.01)
    tree = tree_of(process.pid)

    with suppress(LeftOver):
        ending.end([replace(step(tree, 0.0), kill_s=0.0)], RealClock(), lambda _: None)

    assert process.wait(timeout=30) == -signal.SIGKILL
    assert until(lambda: not any(map(procs.alive, tree.members)) or None, RealClock(), 30, 0.01)


def test_looks_become_rarer_where_nothing_happens() -> None:
    assert ending.pace_s(0.0, killed=False) == ending.pace_s(0.0, killed=True) == 0.02
    assert ending.pace_s(25.0, killed=False) == 0.1
    assert ending.pace_s(25.0, killed=True) == 0.5


def test_what_outlives_a_kill_is_told_with_its_state_and_what_it_holds(start: Start) -> None:
    process = start(LISTENER)
    port = process.stdout.readline().strip() if process.stdout else ""
    identity = procs.identity(process.pid)
    assert identity

    said = ending.survivor(identity)

    assert f"pid {process.pid} (python" in said
    assert re.search(r" is in state [SRD][ ,]", said)
    assert said.endswith(f", listens on port {port}")


def test_a_pid_that_belongs_to_another_process_by_now_is_spared(start: Start) -> None:
    process = start("print('up', flush=True); import time; time.sleep(60)")
    now = census.everything()[process.pid]
    then = Identity(now.identity.boot_id, now.pid, now.identity.start_ticks - 1)
    tree = Tree(root=replace(now, identity=then), members=(then,), unit="", holds=(), signs=())

    ending.end([step(tree, 0.0)], RealClock(), lambda _: None)

    assert process.poll() is None


def test_we_are_spared_even_as_a_child_of_the_tree() -> None:
    """Ended from within: the parent goes, this test goes on."""
    parent = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', sys.argv[1], str(os.getpid())])\n"
        "child.wait(); time.sleep(60)\n"
    )
    child = (
        "import sys\nfrom dsv4ctl import census, ending\nfrom dsv4ctl.blame import Tree\n"
        "from dsv4ctl.clock import RealClock\nfrom dsv4ctl.free import EndTree\n"
        "one = census.everything()[int(sys.argv[1])]\n"
        "tree = Tree(root=one, members=(one.identity,), unit='', holds=(), signs=(), groups=(one.group,))\n"
        "step = EndTree(tree=tree, term_s=0.2, reason='')\n"
        "ending.end([step], RealClock(), lambda _: None)\nprint('still here', flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", parent, child], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.read() == "still here\n"
        process.wait(timeout=10)
    assert process.returncode == -signal.SIGTERM


REUSE = """
import os, subprocess, sys
from pathlib import Path
from dsv4ctl import pidfd, procs
import signal
Path("/proc/sys/kernel/pid_max").write_text("400")
def spawn():
    return subprocess.Popen(["/bin/sleep", "60"])
# The kernel gives numbers below 300 once only.
while (first := spawn()).pid < 300:
    first.kill(); first.wait()
named = procs.identity(first.pid)
first.kill(); first.wait()
for _ in range(2000):
    other = spawn()
    if other.pid == first.pid:
        break
    other.kill(); other.wait()
else:
    sys.exit("the pid did not come again")
assert pidfd.signal(named, signal.SIGKILL) is False
assert other.poll() is None
other.kill(); other.wait()
print("spared")
"""


def test_a_pid_that_was_given_away_between_look_and_signal_is_not_touched() -> None:
    """B18, forced with a pid namespace of few pids."""
    release = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
    if os.geteuid() != 0 or release < (6, 14):
        pytest.skip("it takes root, and a kernel whose pid_max is each namespace's own")
    argv = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", REUSE]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, cwd=Path(__file__).parents[2])

    assert done.stdout == "spared\n", done.stderr
