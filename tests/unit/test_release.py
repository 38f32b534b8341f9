"""What a config becomes on a machine: ports, GPUs, digests, the unit's text; and everything that is refused before."""

import re
from dataclasses import fields, replace
from typing import Any

import pytest

from dsv4ctl import modes, release, unitfile
from dsv4ctl.model import (
    EngineSpec,
    GpuView,
    HostSpec,
    Instance,
    Limits,
    MemorySpec,
    Mode,
    Role,
    RoleShape,
)
from dsv4ctl.problems import BadConfig, EngineMissing, GpuProblem, Problem
from tests import releases
from tests.unit.conftest import Golden

VERSIONS = (249, 252, 257)


def two_servers(**keys: Any) -> HostSpec:
    """Two roles of which nothing keeps ports and GPUs apart."""
    shapes = (RoleShape(role=Role.SERVER, tp=1, gpus=(0,)), RoleShape(role=Role.SERVER, tp=1, gpus=(0,)))
    return releases.spec(mode=Mode(name="own", roles=shapes), **keys)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", releases.SPECS)
def test_a_unit_is_exactly_the_golden_one(name: str, version: int, golden: Golden) -> None:
    asked = releases.SPECS[name]
    engine = releases.build(asked.engine.python or "")
    made = releases.render(asked, releases.machine(systemd_version=version, engine=engine))
    golden(f"{version}/{name}.service", releases.units(made)["dsv4-server.service"])


@pytest.mark.parametrize("host", releases.HOSTS)
@pytest.mark.parametrize("mode", modes.BUILT_IN)
def test_the_units_of_a_mode_on_a_topology_are_exactly_the_golden_ones(mode: str, host: str, golden: Golden) -> None:
    made = releases.render(releases.spec(mode), releases.machine(numa=releases.HOSTS[host]))
    for name, text in releases.units(made).items():
        golden(f"{host}/{mode}/{name}", text)


@pytest.mark.parametrize("version", range(unitfile.OLDEST, unitfile.NEWEST + 1))
def test_no_directive_is_newer_than_the_hosts_systemd(version: int) -> None:
    made = releases.render(releases.spec(), releases.machine(systemd_version=version))
    found = {e.key for file in made.files if "/systemd/" in file.path for e in unitfile.parse([file.text]).entries}
    newer = {key for key in found & unitfile.SINCE.keys() if unitfile.SINCE[key] > version}
    assert not newer
    assert ("RestartSteps" in found) == (version >= 254)
    assert found - unitfile.SINCE.keys() == {"Digest", "StartSec", "ProofSec", "DrainSec", "EngineStopSec"}


def test_an_older_systemd_than_249_is_refused_by_its_number() -> None:
    with pytest.raises(Problem, match="systemd 245: 249 or newer"):
        releases.render(releases.spec(), releases.machine(systemd_version=245))


@pytest.mark.parametrize("spec", releases.SPECS.values(), ids=releases.SPECS)
def test_our_own_lint_has_no_objection_to_what_is_rendered(spec: HostSpec) -> None:
    made = releases.render(spec)
    units = {file.path.rpartition("/")[2]: file.text for file in made.files if "/systemd/" in file.path}
    assert unitfile.lint(units["dsv4-server.service"]) == ()
    assert unitfile.cycles(units) == ()


@pytest.mark.parametrize("mode", ["pd", "dual-tp4"])
def test_our_own_lint_has_no_objection_to_the_units_of_several_roles(mode: str) -> None:
    """B51: nor do they make a ring of Requires=, BindsTo= and PartOf=. B21: none lets workers survive a stop."""
    made = releases.render(releases.spec(mode))
    units = {file.path.rpartition("/")[2]: file.text for file in made.files if "/systemd/" in file.path}
    assert [unitfile.lint(text) for name, text in units.items() if name.endswith(".service")] == [()] * 3
    assert unitfile.cycles(units) == ()


def test_the_command_is_the_supervisor_its_instance_and_the_engine() -> None:
    made = releases.render(releases.spec())
    (instance,) = made.instances
    file = f"/var/lib/dsv4ctl/instances/server-{instance.digest}.json"
    supervisor = (":/opt/dsv4ctl/bin/python", "-P", "-m", "dsv4ctl.supervise")
    assert releases.command(releases.spec()) == (*supervisor, file, "--", *instance.argv)
    assert instance.argv[:3] == ("/opt/sglang/bin/python", "-m", "sglang.launch_server")


def test_a_release_has_the_instance_its_unit_the_target_and_the_slice() -> None:
    made = releases.render(releases.spec())
    (instance,) = made.instances
    assert [file.path for file in made.files] == [
        f"/var/lib/dsv4ctl/instances/server-{instance.digest}.json",
        "/etc/systemd/system/dsv4-server.service",
        "/etc/systemd/system/dsv4.target",
        "/etc/systemd/system/dsv4.slice",
    ]


def test_gpus_are_known_by_uuid_and_ports_by_their_job() -> None:
    (instance,) = releases.render(releases.spec("single-tp8", port=31000, internal_port=21000)).instances
    assert instance.gpu_uuids == tuple(gpu.uuid for gpu in releases.gpus().gpus)
    assert instance.ports == (("http", 31000), ("rendezvous", 21000))


def test_an_engine_without_gpus_needs_none_and_sees_none() -> None:
    cpu = releases.without_gpus()
    machine = releases.machine(gpus=GpuView(problem="no driver"))
    assert releases.environment(cpu, machine)["CUDA_VISIBLE_DEVICES"] == ""
    assert not releases.settings(cpu, machine).all("Service", "DeviceAllow")
    assert "nvidia" not in releases.settings(cpu, machine).last("Unit", "Wants")


# What differs from the default in one value each, and reaches the engine or the unit.
CHANGES: dict[str, dict[str, Any]] = {
    "host": {"host": "127.0.0.2"},
    "port": {"port": 30002},
    "internal_port": {"internal_port": 20100},
    "user": {"user": "inference"},
    "api_key_file": {"api_key_file": "/etc/key"},
    "enable_metrics": {"enable_metrics": False},
    "engine": {"engine": replace(releases.ENGINE, args=("--sleep-on-idle",))},
    "memory": {"memory": MemorySpec(context_length=524288)},
    **{
        f"limits.{field.name}": {"limits": replace(Limits(), **{field.name: getattr(Limits(), field.name) + 1})}
        for field in fields(Limits)
    },
}


@pytest.mark.parametrize("keys", CHANGES.values(), ids=CHANGES)
def test_every_value_that_reaches_engine_or_unit_changes_the_digest(keys: dict[str, Any]) -> None:
    before, after = (releases.render(releases.spec(**k)) for k in ({}, keys))
    assert before.instances[0].digest != after.instances[0].digest
    assert before.digest != after.digest


def test_the_template_and_the_supervisor_change_the_digest_too() -> None:
    spec, texts = releases.spec(), releases.texts()
    digest = releases.render(spec).instances[0].digest
    other = replace(texts, engine_service=texts.engine_service.replace("[Install]", "# another\n[Install]"))
    assert release.render(spec, releases.machine(), other).instances[0].digest != digest
    assert releases.render(spec, releases.here()).instances[0].digest != digest


def test_the_same_config_gives_the_same_release_to_the_byte() -> None:
    assert releases.render(releases.spec()) == releases.render(releases.spec())
    assert re.fullmatch(r"[0-9a-f]{12}", releases.render(releases.spec()).instances[0].digest)


def test_a_changed_target_changes_the_release_and_no_instance() -> None:
    texts = releases.texts()
    before = release.render(releases.spec(), releases.machine(), texts)
    after = release.render(releases.spec(), releases.machine(), replace(texts, target=texts.target + "# more\n"))
    assert after.digest != before.digest
    assert after.instances == before.instances


def test_the_digest_stands_where_the_supervisor_and_status_look_for_it() -> None:
    (instance,) = releases.render(releases.spec()).instances
    assert dict(instance.environment)["DSV4CTL_RELEASE"] == instance.digest
    assert dict(instance.environment)["DSV4CTL_INSTANCE"] == "server"
    assert releases.settings(releases.spec()).last("X-Dsv4ctl", "Digest") == instance.digest


def test_the_key_stands_nowhere_and_its_file_is_a_credential() -> None:
    made = releases.render(releases.SPECS["open"])
    (instance,) = made.instances
    assert releases.service(releases.SPECS["open"], "LoadCredential") == "api-key:/etc/dsv4ctl/api key%%"
    assert instance.secrets_file == "/run/dsv4ctl/server/secrets.yaml"
    assert instance.argv[-2:] == ("--config", instance.secrets_file)
    assert not any("key%" in word for word in instance.argv)


def test_the_note_says_that_the_rendezvous_is_open() -> None:
    (note,) = releases.render(releases.spec()).notes
    assert note.startswith("port 20001 (rendezvous of server) listens on every address")


def test_b02_a_port_with_two_jobs_names_both() -> None:
    with pytest.raises(BadConfig) as caught:
        releases.render(releases.spec(port=20001))
    assert caught.value.messages[0].startswith("port 20001 is used twice: http of server and rendezvous of server;")
    with pytest.raises(BadConfig, match="port 30001 is used twice: http of server-0 and http of server-1"):
        releases.render(two_servers())


def test_b04_a_port_among_the_ephemeral_ones_names_the_way_out() -> None:
    with pytest.raises(BadConfig) as caught:
        releases.render(releases.spec(port=40000, internal_port=32768))
    http, rendezvous = caught.value.messages
    assert re.search(r"port 40000 \(http of server\) lies in 32768-60999", http)
    assert "sysctl -w net.ipv4.ip_local_reserved_ports=32768" in rendezvous


@pytest.mark.parametrize("port", [32767, 61000])
def test_b04_a_port_beside_the_ephemeral_ones_is_fine(port: int) -> None:
    assert releases.render(releases.spec(port=port)).instances[0].port == port


def test_b04_a_reserved_port_is_fine() -> None:
    machine = releases.machine(reserved_ports=frozenset({40000}))
    assert releases.render(releases.spec(port=40000), machine).instances[0].port == 40000


def test_b20_a_runner_in_the_engines_place_is_refused() -> None:
    machine = releases.machine(engine=releases.build("/usr/local/bin/uv"))
    with pytest.raises(BadConfig, match="/usr/local/bin/uv runs the engine as its child"):
        releases.render(releases.spec(), machine)


def test_gpus_that_are_not_there_are_named_with_those_that_are() -> None:
    with pytest.raises(GpuProblem, match="GPUs 4-7 are not there: this host has GPUs 0-3"):
        releases.render(releases.spec("single-tp8"), releases.machine(gpus=releases.gpus(4)))


def test_a_gpu_that_cannot_be_read_is_named_with_the_reason() -> None:
    some = GpuView(gpus=releases.gpus(3).gpus, unreadable=("GPU 3: GPU is lost",))
    with pytest.raises(GpuProblem, match="GPUs 3 are not there: this host has GPUs 0-2; GPU 3: GPU is lost"):
        releases.render(releases.spec(), releases.machine(gpus=some))


def test_gpus_that_cannot_be_read_at_all_give_the_reason() -> None:
    with pytest.raises(GpuProblem, match="cannot use GPUs 0-3: Driver/library version mismatch"):
        releases.render(releases.spec(), releases.machine(gpus=GpuView(problem="Driver/library version mismatch")))


def test_b32_a_gpu_split_by_mig_is_refused_in_one_line_with_the_way_out() -> None:
    """B32: a role never runs on a slice."""
    first, *others = releases.gpus().gpus
    view = GpuView(gpus=(replace(first, mig=True), *others))
    with pytest.raises(GpuProblem, match=r"GPUs 0 are split by MIG.*nvidia-smi -i 0 -mig 0"):
        releases.render(releases.spec(), releases.machine(gpus=view))


def test_a_gpu_that_two_roles_ask_for_names_both() -> None:
    with pytest.raises(BadConfig, match="GPU 0 is asked for more than once: by server-0 and by server-1"):
        releases.render(two_servers())


def test_every_problem_is_told_at_once() -> None:
    spec = releases.spec(engine=EngineSpec(), port=40000, internal_port=40000)
    with pytest.raises(BadConfig) as caught:
        releases.render(spec, releases.machine(gpus=releases.gpus(2)))
    assert [message.split(" ")[0] for message in caught.value.messages] == [
        "engine.python",
        "engine.model",
        "port",
        "port",
        "GPUs",
    ]


def test_an_option_that_the_engine_does_not_know_is_the_engines_problem() -> None:
    spec = releases.spec(engine=replace(releases.ENGINE, args=("--no-such-option",)))
    with pytest.raises(EngineMissing, match="--no-such-option"):
        releases.render(spec)


def test_every_built_in_mode_can_be_rendered() -> None:
    for name in modes.BUILT_IN:
        assert isinstance(releases.render(releases.spec(name)).instances[0], Instance)
