"""What modes of several roles become: ports, names, order, parts; and what is refused before anything starts."""

from dataclasses import replace
from itertools import chain
from typing import Any

import pytest

from dsv4ctl import modes, unitfile
from dsv4ctl.model import EngineParts, HostSpec, Instance, Machine, Release, RouterSpec, SuperviseExit, TransferSpec
from dsv4ctl.problems import BadConfig, EngineMissing
from tests import releases


def pair(**keys: Any) -> HostSpec:
    return releases.spec("pd", **keys)


def named(made: Release) -> dict[str, Instance]:
    return {one.name: one for one in made.instances}


def setting(made: Release, unit: str, section: str, key: str) -> str:
    return unitfile.parse([releases.units(made)[unit]]).last(section, key)


def test_b02_every_port_of_every_role_is_explicit() -> None:
    made = named(releases.render(pair(port=31000, internal_port=21000)))
    assert {name: one.ports for name, one in made.items()} == {
        "prefill": (("http", 21001), ("rendezvous", 21000), ("bootstrap", 21002)),
        "decode": (("http", 21011), ("rendezvous", 21010)),
        "router": (("http", 31000), ("metrics", 21023)),
    }


@pytest.mark.parametrize("mode", modes.BUILT_IN)
def test_b02_no_port_is_planned_twice_and_each_reaches_the_program_that_binds_it(mode: str) -> None:
    made = releases.render(releases.spec(mode))
    ports = [port for one in made.instances for _, port in one.ports]
    assert len(ports) == len(set(ports))
    for one in made.instances:
        assert {str(port) for _, port in one.ports} <= set(one.argv), one.name


@pytest.mark.parametrize(
    ("keys", "users"),
    [
        ({"port": 20011}, "rendezvous of decode and http of router"),
        ({"port": 20003}, "bootstrap of prefill and http of router"),
        ({"port": 20024}, "http of router and metrics of router"),
        ({"transfer": TransferSpec(bootstrap_port=20012)}, "bootstrap of prefill and http of decode"),
        ({"router": RouterSpec(metrics_port=20001)}, "rendezvous of prefill and metrics of router"),
        ({"transfer": TransferSpec(bootstrap_port=8998), "port": 8998}, "bootstrap of prefill and http of router"),
    ],
)
def test_b02_two_roles_that_share_a_port_are_both_named(keys: dict[str, Any], users: str) -> None:
    with pytest.raises(BadConfig, match=f"is used twice: {users}; give port"):
        releases.render(pair(**keys))


def test_b02_no_port_of_any_job_may_lie_where_the_kernel_hands_out_ports() -> None:
    asked = pair(
        internal_port=40000, transfer=TransferSpec(bootstrap_port=41000), router=RouterSpec(metrics_port=42000)
    )
    with pytest.raises(BadConfig) as caught:
        releases.render(asked)
    told = "\n".join(caught.value.messages)
    jobs = ("rendezvous of prefill", "rendezvous of decode", "http of prefill", "http of decode")
    assert all(f"({job}) lies in 32768-60999" in told for job in (*jobs, "bootstrap of prefill", "metrics of router"))


def test_the_router_alone_listens_where_clients_are() -> None:
    made = named(releases.render(pair(host="0.0.0.0")))  # noqa: S104 -- the case is about it
    assert [made[name].host for name in ("prefill", "decode", "router")] == ["127.0.0.1", "127.0.0.1", "0.0.0.0"]  # noqa: S104
    for one in made.values():
        assert one.argv[one.argv.index("--host") + 1] == one.host


def test_two_servers_have_names_units_and_key_files_of_their_own() -> None:
    made = named(releases.render(releases.spec("dual-tp4", api_key_file="/etc/key")))
    assert [one.unit for one in made.values()] == [
        "dsv4-server-0.service",
        "dsv4-server-1.service",
        "dsv4-router.service",
    ]
    assert [one.secrets_file for one in made.values()] == [
        f"/run/dsv4ctl/{name}/secrets.yaml" for name in ("server-0", "server-1", "router")
    ]


def test_b64_and_b65_each_half_has_its_own_gpus_and_is_bound_to_their_node() -> None:
    made = named(releases.render(pair()))
    uuids = [gpu.uuid for gpu in releases.gpus().gpus]
    assert [made[name].gpu_uuids for name in ("prefill", "decode")] == [tuple(uuids[:4]), tuple(uuids[4:])]
    assert [one.binding and one.binding.node for one in made.values()] == [0, 1, None]


def test_b52_the_router_is_ordered_after_its_workers_and_starts_even_where_one_has_failed() -> None:
    made = releases.render(pair())
    router = "dsv4-router.service"
    assert {"dsv4-prefill.service", "dsv4-decode.service"} <= set(setting(made, router, "Unit", "After").split())
    assert not any(setting(made, router, "Unit", key) for key in ("Requires", "BindsTo", "Requisite", "Wants"))


def test_b52_the_halves_of_a_pair_start_side_by_side() -> None:
    made = releases.render(pair())
    for unit in ("dsv4-prefill.service", "dsv4-decode.service"):
        assert "dsv4-" not in setting(made, unit, "Unit", "After")


def test_b49_no_role_is_bounced_with_another() -> None:
    for mode in ("pd", "dual-tp4"):
        for name, text in releases.units(releases.render(releases.spec(mode))).items():
            assert not any(key in text for key in ("Requires=", "BindsTo=", "Upholds=")), name


@pytest.mark.parametrize("mode", ["single-tp4", "pd", "dual-tp4"])
def test_another_interpreter_of_the_router_is_another_router_and_no_other_engine(mode: str) -> None:
    before = named(releases.render(releases.spec(mode)))
    elsewhere = RouterSpec(python="/opt/elsewhere/bin/python")
    on = releases.machine(router=releases.router_build("/opt/elsewhere/bin/python"))
    after = named(releases.render(releases.spec(mode, router=elsewhere), on))
    assert {name for name in before if before[name].digest != after[name].digest} == {"router"} & before.keys()


def test_the_router_waits_for_the_disk_of_its_own_interpreter() -> None:
    router = RouterSpec(python="/opt/router/bin/python")
    made = releases.render(pair(router=router), releases.machine(router=releases.router_build(router.python or "")))
    waits = {unit: setting(made, unit, "Unit", "RequiresMountsFor") for unit in releases.units(made)}
    assert {unit for unit, paths in waits.items() if "/opt/router/bin/python" in paths} == {"dsv4-router.service"}


def test_a_changed_worker_leaves_its_peer_and_the_router_as_they_are() -> None:
    before = named(releases.render(pair()))
    after = named(releases.render(pair(), releases.machine(numa=releases.numa(0, 0, 0, 0, 1, 1, 1, 0))))
    assert {name for name in before if before[name].digest != after[name].digest} == {"decode"}


def test_each_half_knows_its_other_half_and_the_router_and_the_router_knows_where_its_workers_are() -> None:
    made = named(releases.render(pair()))
    assert {name: [peer.name for peer in one.peers] for name, one in made.items()} == {
        "prefill": ["decode", "router"],
        "decode": ["prefill", "router"],
        "router": ["decode", "prefill"],
    }
    assert [(peer.host, peer.port, peer.bootstrap_port) for peer in made["router"].peers] == [
        ("127.0.0.1", 20012, None),
        ("127.0.0.1", 20002, 20003),
    ]


def test_a_server_knows_its_router_and_not_the_other_server() -> None:
    made = named(releases.render(releases.spec("dual-tp4")))
    assert [peer.unit for peer in made["server-0"].peers] == ["dsv4-router.service"]
    assert [peer.name for peer in made["router"].peers] == ["server-0", "server-1"]
    assert releases.render(releases.spec()).instances[0].peers == ()


def test_b82_a_half_that_ends_because_its_router_asked_for_it_is_started_again_and_has_not_failed() -> None:
    made = releases.render(pair())
    asked = str(int(SuperviseExit.ASKED))
    for unit in ("dsv4-prefill.service", "dsv4-decode.service"):
        for key in ("SuccessExitStatus", "RestartForceExitStatus"):
            assert setting(made, unit, "Service", key) == asked
    assert not setting(made, "dsv4-router.service", "Service", "RestartForceExitStatus")


def test_another_port_for_clients_is_another_router_and_no_other_half() -> None:
    before = named(releases.render(pair()))
    after = named(releases.render(pair(port=30009, router=RouterSpec(policy="random"))))
    assert {name for name in before if before[name].digest != after[name].digest} == {"router"}


@pytest.mark.parametrize(("backend", "why"), [("nixl", "nixl in SGLang 0.5.23"), ("mooncake_tcp", "")])
def test_b82_the_router_of_a_pair_knows_whether_one_half_may_come_back_alone(backend: str, why: str) -> None:
    facts = releases.machine(parts=EngineParts(modules=frozenset({"nixl", "mooncake"})))
    made = named(releases.render(pair(transfer=TransferSpec(backend=backend)), facts))
    assert made["router"].together.startswith(why)
    assert bool(made["router"].together) == bool(why)
    assert not made["prefill"].together
    assert not named(releases.render(releases.spec("dual-tp4")))["router"].together


def test_a_router_in_front_of_random_weights_knows_that_they_repeat_nothing() -> None:
    options = releases.build()
    known = replace(options, options=options.options | {"--load-format"})
    dummy = pair(engine=replace(releases.ENGINE, args=("--load-format", "dummy")))
    made = named(releases.render(dummy, releases.machine(engine=known)))
    assert not any(peer.repeats for peer in made["router"].peers)
    assert all(peer.repeats for peer in named(releases.render(pair()))["router"].peers)


def test_a_missing_module_is_told_before_the_load_with_what_to_install() -> None:
    with pytest.raises(
        EngineMissing, match="cannot hand KV over by nixl: /opt/sglang/bin/python has no module"
    ) as caught:
        releases.render(pair(), releases.machine(parts=EngineParts(modules=frozenset({"mooncake"}))))
    assert "pip install nixl" in caught.value.hint


@pytest.mark.parametrize("backend", ["mooncake", "mooncake_tcp"])
def test_mooncake_is_one_module_for_both_of_its_ways(backend: str) -> None:
    asked = pair(transfer=TransferSpec(backend=backend))
    assert releases.render(asked, releases.machine(parts=EngineParts(modules=frozenset({"mooncake"}))))
    with pytest.raises(EngineMissing, match=f"cannot hand KV over by {backend}: .* has no module mooncake"):
        releases.render(asked)


def test_servers_behind_a_router_hand_nothing_over() -> None:
    assert releases.render(releases.spec("dual-tp4"), releases.machine(parts=EngineParts()))


@pytest.mark.parametrize("python", [None, "/opt/router/bin/python"])
def test_a_missing_router_is_told_with_the_interpreter_that_lacks_it(python: str | None) -> None:
    lacking: Machine = releases.machine(router=None)
    with pytest.raises(EngineMissing, match=f"{python or '/opt/sglang/bin/python'} has no package sglang_router"):
        releases.render(pair(router=RouterSpec(python=python)), lacking)


def test_a_pair_on_no_gpu_is_bound_nowhere_and_told_of_no_gpu() -> None:
    none = pair(mode=modes.place(modes.BUILT_IN["pd"], ()))
    made = releases.render(none, releases.machine())
    assert [one.binding for one in made.instances] == [None] * 3
    variables = chain.from_iterable(one.environment for one in made.instances)
    assert {value for name, value in variables if name == "CUDA_VISIBLE_DEVICES"} == {""}


def test_the_key_of_the_router_stands_in_no_unit() -> None:
    made = releases.render(replace(pair(), api_key_file="/etc/dsv4ctl/key"))
    assert setting(made, "dsv4-router.service", "Service", "LoadCredential") == "api-key:/etc/dsv4ctl/key"
    router = named(made)["router"]
    assert router.secrets_file in router.argv
    words = unitfile.words(setting(made, "dsv4-router.service", "Service", "ExecStart"))
    assert words[-len(router.argv) :] == router.argv
