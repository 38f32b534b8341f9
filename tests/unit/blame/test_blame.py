"""Who is blamed, on small forests: each test is one kind of host that people have."""

from dataclasses import replace
from typing import Any

import pytest

from dsv4ctl.blame import Blame, Suspect, Verdict, blame
from dsv4ctl.model import Process
from tests.unit.blame.forests import HOST, SESSION, ask, holds, listens, process, scene


def pids(found: Blame) -> set[int]:
    return {identity.pid for identity in found.ended}


def only(found: Blame) -> Suspect:
    assert len(found.suspects) == 1
    return found.suspects[0]


def engine(main: int = 1000, ranks: int = 2, **more: object) -> tuple[Process, ...]:
    """A server as SGLang starts it: ranks and detokenizer in the group and session of the main process."""
    children = [process(main + 1 + n, main, group=main, comm="sglang::schedul", **more) for n in range(ranks)]
    texter = process(main + 1 + ranks, main, group=main, comm="sglang::detoken", **more)
    return (process(main, 200, **more), *children, texter)


def test_a_hand_started_server_is_a_stray_with_its_whole_tree_and_the_shell_is_spared() -> None:
    main, rank0, rank1, texter = engine()
    there = scene(main, rank0, rank1, texter, engines=[1000, 1001, 1002, 1003], listeners=(listens(30001, main),))

    found = blame(there, ask(30001))

    assert only(found).verdict is Verdict.STRAY
    assert pids(found) == {1000, 1001, 1002, 1003}
    assert found.trees[0].root == main


def test_renamed_workers_without_environment_of_their_own_are_found_as_children() -> None:
    main, *workers = engine()
    there = scene(main, *workers, engines=[1000], listeners=(listens(30001, main),))

    assert pids(blame(there, ask(30001))) == {1000, 1001, 1002, 1003}


def test_a_worker_that_left_session_and_group_is_found_by_its_gpu() -> None:
    lost = process(1500, 1, session=1500, comm="kv-offload/0")
    there = scene(lost, engines=[1500], holds=(holds(0, lost),))

    found = blame(there, ask(30001, gpus=[0]))

    assert only(found).verdict is Verdict.STRAY
    assert pids(found) == {1500}


def test_orphans_of_a_killed_main_are_ended_together_with_the_detokenizer_that_holds_nothing() -> None:
    orphans = [process(1001 + n, 1, group=1000) for n in range(3)]
    there = scene(*orphans, engines=[1001, 1002, 1003], holds=(holds(0, orphans[0]), holds(1, orphans[1])))

    found = blame(there, ask(gpus=[0, 1]))

    assert pids(found) == {1001, 1002, 1003}
    assert len(found.trees) == 1


def test_orphans_in_the_group_of_a_script_that_still_runs_are_ended_and_the_script_is_not() -> None:
    script = process(900, 200, comm="bash")
    orphans = [process(1001 + n, 1, group=900) for n in range(2)]
    bystander = process(1100, 900, group=900, comm="tee")
    there = scene(script, bystander, *orphans, engines=[1001, 1002], holds=(holds(0, orphans[0]),))

    assert pids(blame(there, ask(gpus=[0]))) == {1001, 1002}


def test_another_server_of_the_same_session_and_environment_is_spared() -> None:
    ours, other = engine(1000), engine(1100)
    there = scene(
        *ours, *other, engines=[p.pid for p in (*ours, *other)],
        listeners=(listens(30001, ours[0]), listens(30005, other[0])),
        holds=(holds(0, ours[1]), holds(4, other[1])),
    )  # fmt: skip

    assert pids(blame(there, ask(30001, gpus=[0]))) == {p.pid for p in ours}


def test_another_server_is_spared_even_as_an_orphan_of_the_same_dead_script() -> None:
    remains = [process(1001 + n, 1, group=900) for n in range(2)]
    other = process(1100, 1, group=900)
    rank = process(1101, 1100, group=900)
    there = scene(*remains, other, rank, engines=[1001, 1002, 1100, 1101], holds=(holds(0, remains[0]), holds(4, rank)))

    assert pids(blame(there, ask(gpus=[0]))) == {1001, 1002}


def test_nginx_on_the_port_is_foreign_and_its_service_is_named() -> None:
    nginx = process(1000, 1, comm="nginx", cgroup="/system.slice/nginx.service", session=1000)

    found = blame(scene(nginx, listeners=(listens(30001, nginx),)), ask(30001))

    assert (only(found).verdict, only(found).place) == (Verdict.FOREIGN, "nginx.service")
    assert found.ended == frozenset()


def test_whoever_only_has_sglang_in_its_arguments_survives() -> None:
    reader = process(1000, 200, comm="vim", command="vim sglang/launch_server.py")

    assert blame(scene(reader, listeners=(listens(30001, reader),)), ask(30001)).ended == frozenset()


def test_programs_of_the_engines_environment_that_hold_nothing_asked_for_are_neither_named_nor_ended() -> None:
    """A pip, a prompt, a pytest, a notebook with a port of its own, in the session of an engine that goes."""
    others = (process(1100, 200), process(1101, 200), process(1102, 200), process(1103, 200, comm="jupyter"))
    there = engine()
    listening = (listens(30001, there[0]), listens(8888, others[3]))
    engines = (1000, 1001, 1002, 1100, 1101, 1102, 1103)

    found = blame(
        scene(*there, *others, engines=engines, listeners=listening, bare=frozenset({1100, 1101})), ask(30001)
    )

    assert pids(found) == {p.pid for p in there}
    assert {s.process.pid for s in found.suspects if s.process} == {1000}


def test_whoever_listens_with_the_interpreter_alone_is_no_engine_and_ended_only_by_name() -> None:
    """`python -m http.server` of the engine's environment on the port that is wanted."""
    web = process(1000, 200)
    there = scene(web, engines=(1000,), listeners=(listens(30001, web),), bare=frozenset({1000}))

    assert blame(there, ask(everything=True)).suspects == ()
    found = blame(there, ask(30001))

    assert only(found).verdict is Verdict.FOREIGN
    assert "has loaded nothing of it" in only(found).signs[0]
    assert pids(found) == set()
    assert pids(blame(there, ask(30001, evict=[web]))) == {1000}


def test_a_prompt_of_the_engines_own_interpreter_that_started_the_engine_stays() -> None:
    prompt = process(900, 200)
    there = engine()
    main = replace(there[0], parent_pid=900)
    listening = (listens(30001, main),)

    found = blame(
        scene(prompt, main, *there[1:], engines=(900, 1000, 1001, 1002), listeners=listening, bare=frozenset({900})),
        ask(30001),
    )

    assert pids(found) == {p.pid for p in there}


def test_a_notebook_on_a_requested_gpu_is_foreign() -> None:
    notebook = process(1000, 1)

    found = blame(scene(notebook, holds=(holds(0, notebook),)), ask(30001, gpus=[0]))

    assert only(found).verdict is Verdict.FOREIGN
    assert "no sign says that it is an engine" in only(found).signs


def test_an_engine_of_no_known_environment_is_told_by_port_and_gpu_of_one_tree() -> None:
    main, rank, *rest = engine()
    there = scene(main, rank, *rest, listeners=(listens(30001, main),), holds=(holds(0, rank),))

    assert pids(blame(there, ask(30001, gpus=[0]))) == {1000, 1001, 1002, 1003}


def test_a_port_and_a_gpu_of_two_trees_make_no_engine() -> None:
    web, notebook = process(1000, 200), process(1100, 200)
    there = scene(web, notebook, listeners=(listens(30001, web),), holds=(holds(0, notebook),))

    assert blame(there, ask(30001, gpus=[0])).ended == frozenset()


def test_only_what_was_asked_for_is_taken() -> None:
    main, *rest = engine()
    there = scene(main, *rest, engines=[1000], listeners=(listens(30001, main),), holds=(holds(3, rest[0]),))

    assert blame(there, ask(30000, gpus=[0])) == Blame()


def test_what_runs_in_a_unit_of_ours_is_left_to_systemd() -> None:
    main = process(1000, 1, cgroup="/dsv4.slice/dsv4-server.service")
    there = scene(main, engines=[1000], listeners=(listens(30001, main),), units=frozenset({"dsv4-server.service"}))

    found = blame(there, ask(30001))

    assert only(found).verdict is Verdict.OURS
    assert found.ended == frozenset()


def test_an_engine_in_a_service_of_somebody_elses_is_foreign_and_ended_through_systemd_when_it_is_named() -> None:
    main = process(1000, 1, cgroup="/system.slice/sglang-old.service", session=1000)
    there = scene(main, engines=[1000], listeners=(listens(30001, main),))

    assert blame(there, ask(30001)).ended == frozenset()
    (tree,) = blame(there, ask(30001, evict=[main])).trees
    assert tree.unit == "sglang-old.service"


def test_an_engine_that_systemd_run_started_is_a_stray_and_ended_through_its_unit() -> None:
    unit = "/system.slice/run-u12.service"
    main, helper = process(1000, 1, cgroup=unit, session=1000), process(1050, 1, cgroup=unit, session=1050)
    there = scene(main, helper, engines=[1000], listeners=(listens(30001, main),))

    (tree,) = blame(there, ask(30001)).trees

    assert tree.unit == "run-u12.service"
    assert {i.pid for i in tree.members} == {1000, 1050}


def test_where_sessions_live_in_the_service_of_sshd_that_service_is_no_engines_own() -> None:
    ssh = "/system.slice/ssh.service"
    moved = [replace(p, cgroup=ssh) for p in HOST if p.pid != 1]
    main = process(1000, 200, cgroup=ssh)
    there = scene(*moved, main, engines=[1000], listeners=(listens(30001, main),))

    (tree,) = blame(there, ask(30001)).trees

    assert (tree.unit, {i.pid for i in tree.members}) == ("", {1000})


@pytest.mark.parametrize(
    "what",
    [
        {"comm": "docker-proxy", "cgroup": "/system.slice/docker.service"},
        {"comm": "rootlessport"},
        {"comm": "sshd", "cgroup": "/system.slice/ssh.service"},
        {"comm": "systemd", "cgroup": "/user.slice/user-0.slice/user@0.service/init.scope"},
        {"pid_namespace": 4026532000},
        {"net_namespace": 4026532000},
        {"cgroup": f"/system.slice/docker-{'ab' * 32}.scope"},
        {"cgroup": f"/kubepods/burstable/pod1b/{'ab' * 32}"},
        {"kernel": True},
        {"cgroup": "/user.slice/user-1000.slice/user@1000.service/app.slice/sglang.service"},
    ],
)
def test_a_protected_holder_is_never_ended_not_even_by_name(what: dict[str, object]) -> None:
    holder = process(1000, 1, session=1000, **what)
    there = scene(holder, engines=[1000], listeners=(listens(30001, holder),), holds=(holds(0, holder),))

    found = blame(there, ask(30001, gpus=[0], everything=True, evict=[holder]))

    assert only(found).verdict is Verdict.PROTECTED
    assert found.ended == frozenset()


def test_we_and_our_shell_are_spared_even_where_the_shell_was_started_by_the_engine() -> None:
    main = process(120, 100)
    shell = process(150, 120, comm="sshd")
    there = scene(main, shell, engines=[120], listeners=(listens(30001, main),))

    found = blame(there, ask(30001, evict=[main], everything=True))

    assert only(found).verdict is Verdict.PROTECTED
    assert found.ended == frozenset()


def test_a_port_whose_owner_cannot_be_read_is_unknown_and_nobody_is_ended() -> None:
    found = blame(scene(listeners=(listens(30001),)), ask(30001))

    assert only(found).verdict is Verdict.UNKNOWN
    assert found.ended == frozenset()


def test_a_process_whose_namespaces_cannot_be_read_is_unknown() -> None:
    hidden = process(1000, 200, pid_namespace=0)

    found = blame(scene(hidden, engines=[1000], listeners=(listens(30001, hidden),)), ask(30001))

    assert only(found).verdict is Verdict.UNKNOWN
    assert found.ended == frozenset()


def test_a_gpu_holder_that_proc_does_not_confirm_is_not_judged() -> None:
    there = scene(worker := process(1000, 200), engines=[1000], holds=(holds(0, worker, believed=False),))

    assert blame(there, ask(gpus=[0])) == Blame()


def test_a_holder_whose_pid_belongs_to_another_process_by_now_is_not_judged() -> None:
    then, now = process(1000, 200), replace(process(1000, 200), identity=process(1001).identity)
    now = replace(now, identity=replace(then.identity, start_ticks=9))

    assert blame(scene(now, engines=[1000], listeners=(listens(30001, then),)), ask(30001)).ended == frozenset()


def test_one_on_its_way_out_is_waited_for_alone_whatever_hangs_together_with_it() -> None:
    """Of a killed shell, say, that had a port: its session goes on, and nobody in it is touched."""
    shell, child = process(1000, 1, session=1000, comm="bash"), process(1001, 1000, session=1000)
    found = blame(scene(shell, child, listeners=(listens(30001, shell),), leaving=frozenset({1000})), ask(30001))

    assert only(found).verdict is Verdict.STRAY
    (tree,) = found.trees
    assert (tree.leaving, pids(found)) == (True, {1000})


@pytest.mark.parametrize(
    "what", [{"comm": "docker-proxy"}, {"cgroup": "/system.slice/nginx.service"}, {"pid_namespace": 0}]
)
def test_on_its_way_out_a_protected_or_foreign_holder_is_still_that(what: dict[str, Any]) -> None:
    one = process(1000, **what)

    found = blame(scene(one, listeners=(listens(30001, one),), leaving=frozenset({1000})), ask(30001))

    assert only(found).verdict is not Verdict.STRAY
    assert pids(found) == set()


def test_named_by_evict_a_foreign_process_is_ended_with_its_children_and_without_its_parent() -> None:
    notebook = process(1000, 200)
    kernel, child = process(1001, 1000), process(1002, 1001)
    there = scene(notebook, kernel, child, holds=(holds(0, kernel),))

    found = blame(there, ask(gpus=[0], evict=[kernel]))

    assert only(found).evicted
    assert pids(found) == {1001, 1002}


def test_everything_takes_every_engine_and_nobody_else() -> None:
    main, *rest = engine()
    web, notebook = process(1200, 200), process(1300, 200)
    there = scene(
        main, *rest, web, notebook, engines=[1000],
        listeners=(listens(30009, main), listens(80, web)), holds=(holds(0, notebook),),
    )  # fmt: skip

    assert pids(blame(there, ask(everything=True))) == {1000, 1001, 1002, 1003}


def test_everything_takes_the_orphans_of_the_import_window_that_hold_nothing_yet() -> None:
    orphans = [process(1001 + n, 1, group=1000) for n in range(2)]
    daemon = process(1200, 1)
    there = scene(*orphans, daemon, engines=[1001, 1002, 1200], bare=frozenset({1001, 1002}))

    assert pids(blame(there, ask(everything=True))) == {1001, 1002}


def test_everything_takes_the_orphans_of_the_import_window_whose_script_waits_for_them() -> None:
    script = process(900, 200, comm="bash")
    orphans = [process(1001 + n, 1, group=900) for n in range(2)]
    client = process(1200, 900, group=900)
    there = scene(script, *orphans, client, engines=[1001, 1002, 1200])

    assert pids(blame(there, ask(everything=True))) == {1001, 1002}


def test_everything_takes_the_orphans_of_a_main_process_of_which_the_threads_still_end() -> None:
    main = process(1000, 200, state="Z")
    orphans = [process(1001 + n, 1000, group=1000) for n in range(2)]

    assert pids(blame(scene(main, *orphans, engines=[1001, 1002]), ask(everything=True))) == {1001, 1002}


def test_a_child_that_shares_the_listening_socket_is_called_a_stray_with_its_parent() -> None:
    main, worker = process(1000, 200), process(1001, 1000, group=1000)
    there = scene(main, worker, engines=[1000], listeners=(listens(30001, main, worker),))

    found = blame(there, ask(30001))

    assert {s.verdict for s in found.suspects} == {Verdict.STRAY}
    assert "tree of pid 1000" in found.suspects[1].signs[0]


def test_a_member_in_the_cgroup_of_the_session_does_not_bring_the_session() -> None:
    main, *rest = engine()
    editor = process(1400, 200, comm="vim", cgroup=SESSION)
    there = scene(main, *rest, editor, engines=[1000], listeners=(listens(30001, main),))

    assert 1400 not in pids(blame(there, ask(30001)))


def test_a_worker_without_its_main_process_is_headless_and_a_main_process_that_outlived_its_shell_is_not() -> None:
    worker, main = process(1000, 1, session=900), process(1100, 1, session=901)
    rank = process(1101, 1100, group=1100)
    there = scene(
        worker, main, rank, engines=[1000, 1100, 1101],
        listeners=(listens(30001, main), listens(41000, worker)), holds=(holds(0, worker), holds(4, rank)),
    )  # fmt: skip

    found = blame(there, ask(30001, gpus=[0, 4]))

    assert {tree.root.pid: tree.headless for tree in found.trees} == {1000: True, 1100: False}


def test_a_parent_that_cannot_be_told_is_not_ended_as_the_root_of_its_child() -> None:
    hidden, child = process(1000, 200, pid_namespace=0), process(1001, 1000)
    there = scene(hidden, child, engines=[1000, 1001], listeners=(listens(30001, child),))

    assert pids(blame(there, ask(30001))) == {1001}


ADOPTED = "/dsv4.slice/dsv4-adopted-server-30000.scope"


def test_what_was_adopted_goes_whole_and_through_its_scope_when_it_is_asked_for() -> None:
    main, *workers = engine(cgroup=ADOPTED)
    # A compiler that an engine started, which has none of the engine's libraries mapped.
    helper = process(1500, 1, cgroup=ADOPTED, comm="ninja")
    there = scene(main, *workers, helper, engines=[1000, 1001, 1002, 1003])

    assert blame(there, ask()).trees == ()
    found = blame(there, replace(ask(), adopted=True))

    (tree,) = found.trees
    assert (tree.root, tree.unit) == (main, "dsv4-adopted-server-30000.scope")
    assert pids(found) == {1000, 1001, 1002, 1003, 1500}
    assert {suspect.signs for suspect in found.suspects} == {("it was adopted into dsv4-adopted-server-30000.scope",)}
