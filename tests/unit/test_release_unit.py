"""The text of an engine's unit: what systemd is told, each with the fault that it is there for."""

from dataclasses import replace

import pytest

from dsv4ctl import modes
from dsv4ctl.model import HostSpec, Limits, Machine, Mode, Numa, SuperviseExit
from dsv4ctl.problems import BadConfig
from dsv4ctl.release.unit import BY_HAND
from tests import releases
from tests.releases import command, environment, seconds, service, settings, spec


def test_b38_the_driver_is_waited_for_and_not_required() -> None:
    """B38: a host without persistenced starts as well."""
    unit = settings(spec())
    for key in ("Wants", "After"):
        assert {"nvidia-persistenced.service", "modprobe@nvidia_uvm.service"} <= set(unit.last("Unit", key).split())
    assert not unit.last("Unit", "Requires")


@pytest.mark.parametrize("limits", [Limits(), Limits(start_s=60, proof_s=10), Limits(start_s=86400)])
def test_b41_the_start_limit_is_always_there_and_b43_longer_than_what_it_holds(limits: Limits) -> None:
    assert seconds(spec(limits=limits), "Service", "TimeoutStartSec") >= limits.start_s + limits.proof_s + 60


def test_b44_only_the_supervisor_is_heard() -> None:
    assert (service(spec(), "Type"), service(spec(), "NotifyAccess")) == (
        "notify",
        "main",
    )


@pytest.mark.parametrize(
    "limits", [Limits(), Limits(starts=10, start_s=86400), Limits(restart_s=300, restart_max_s=300)]
)
def test_b48_the_start_limits_stand_under_unit_and_trip_also_for_the_slowest_failures(limits: Limits) -> None:
    asked = spec(limits=limits)
    longest_try_s = (
        seconds(asked, "Service", "TimeoutStartSec")
        + seconds(asked, "Service", "TimeoutStopSec")
        + limits.restart_max_s
    )
    assert seconds(asked, "Unit", "StartLimitIntervalSec") > (limits.starts + BY_HAND) * longest_try_s
    assert settings(asked).last("Unit", "StartLimitBurst") == str(limits.starts + BY_HAND)
    assert not any(e.section == "Service" and e.key.startswith("StartLimit") for e in settings(asked).entries)


def test_the_brake_closes_before_systemds_own_limit_which_sees_every_start_of_the_brakes_window() -> None:
    limits = Limits(starts=1, window_s=86400, start_s=60, restart_max_s=15)
    assert int(settings(spec(limits=limits)).last("Unit", "StartLimitBurst")) > limits.starts
    assert seconds(spec(limits=limits), "Unit", "StartLimitIntervalSec") > limits.window_s


def test_b49_the_target_does_not_require_what_is_part_of_it() -> None:
    made = releases.render(spec())
    assert settings(spec()).last("Unit", "PartOf") == "dsv4.target"
    assert settings(spec()).last("Install", "WantedBy") == "dsv4.target"
    assert not any("Requires=" in file.text for file in made.files)


def test_systemd_slows_restarts_down_where_it_can() -> None:
    old, new = (releases.machine(systemd_version=version) for version in (252, 254))
    assert service(spec(), "RestartSec", old) == service(spec(), "RestartSec", new) == "15"
    assert (
        service(spec(), "RestartSteps", new),
        service(spec(), "RestartMaxDelaySec", new),
    ) == (
        "5",
        "300",
    )
    assert service(spec(), "RestartSteps", old) == ""
    steady = spec(limits=Limits(restart_s=300, restart_max_s=300))
    assert service(steady, "RestartSteps", new) == ""


def test_a_usage_error_a_taken_port_a_missing_file_a_failed_proof_and_the_brake_are_not_restarted() -> None:
    assert service(spec(), "Restart") == "on-failure"
    final = {SuperviseExit(int(word)) for word in service(spec(), "RestartPreventExitStatus").split()}
    # A stop by a signal before READY=1 is a failure to systemd, whatever the status.
    names = ("USAGE", "PORT", "MISSING", "PROOF", "PARKED")
    assert final == {SuperviseExit.OK, *(SuperviseExit[name] for name in names)}


def test_b54_no_core_file_is_waited_for() -> None:
    assert service(spec(), "LimitCORE") == "0"


def test_b55_and_b57_nasty_values_come_back_from_the_unit_as_they_were() -> None:
    (instance,) = releases.render(releases.SPECS["nasty"]).instances
    assert command(releases.SPECS["nasty"])[6:] == instance.argv
    assert releases.NASTY.model in instance.argv
    assert environment(releases.SPECS["nasty"]) == dict(instance.environment)
    assert dict(releases.NASTY.environment).items() <= environment(releases.SPECS["nasty"]).items()


def test_b55_what_no_unit_can_carry_is_refused_with_its_name_and_all_at_once() -> None:
    engine = replace(releases.ENGINE, environment=(("BYTES", "a\udcff"), ("NUL", "\0")), model="/models/\udcff")
    with pytest.raises(BadConfig) as caught:
        releases.render(spec(engine=engine))
    assert [message for message in caught.value.messages if "BYTES" in message and "UTF-8" in message]
    assert [message for message in caught.value.messages if "NUL: " in message]
    assert [message for message in caught.value.messages if "--model-path: " in message]


def test_b58_locked_memory_and_open_files_are_not_limited() -> None:
    assert service(spec(), "LimitMEMLOCK") == "infinity"
    assert int(service(spec(), "LimitNOFILE")) >= 65535
    assert service(spec(), "TasksMax") == "infinity"


def test_b61_compilers_home_and_caches_are_found_without_a_shell() -> None:
    found = environment(spec())
    assert found["PATH"].split(":")[:2] == ["/opt/sglang/bin", "/usr/local/cuda/bin"]
    assert {"/usr/bin", "/bin", "/usr/sbin"} <= set(found["PATH"].split(":"))
    assert found["HOME"] == f"/var/cache/{service(spec(), 'CacheDirectory')}"
    assert found["SGLANG_CACHE_DIR"].startswith(found["HOME"])
    assert service(spec(), "WorkingDirectory") == found["HOME"]


def test_b61_the_operators_own_cuda_and_path_win() -> None:
    other_cuda = replace(releases.ENGINE, environment=(("CUDA_HOME", "/opt/cuda-13"),))
    assert "/opt/cuda-13/bin" in environment(spec(engine=other_cuda))["PATH"].split(":")
    own_path = replace(releases.ENGINE, environment=(("PATH", "/only/this"),))
    assert environment(spec(engine=own_path))["PATH"] == "/only/this"


def test_b63_no_log_line_is_dropped_for_its_rate() -> None:
    # An interval of 0 never reaches journald, which then takes its own limit.
    assert service(spec(), "LogRateLimitIntervalSec") == "1s"
    assert int(service(spec(), "LogRateLimitBurst")) > 1_000_000


def test_b64_gpus_are_counted_in_bus_order() -> None:
    assert environment(spec())["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


@pytest.mark.parametrize(
    "limits", [Limits(), Limits(drain_s=3600, engine_stop_s=3600), Limits(drain_s=1, engine_stop_s=1)]
)
def test_b87_the_stop_limit_holds_drain_engine_stop_and_a_margin(limits: Limits) -> None:
    assert seconds(spec(limits=limits), "Service", "TimeoutStopSec") >= limits.drain_s + limits.engine_stop_s + 80


def test_what_lies_in_a_temporary_folder_is_shown_again_with_its_neighbours() -> None:
    engine = replace(
        releases.ENGINE,
        python="/var/tmp/real/venv/bin/python",  # noqa: S108 -- the case is about it
        model="/tmp/my models/hub/snapshots/1",  # noqa: S108 -- the case is about it
        environment=(("LD_LIBRARY_PATH", "/usr/lib:/tmp/libs/a"),),
    )
    assert service(spec(engine=engine), "BindReadOnlyPaths") == '-/tmp/libs "-/tmp/my models" -/var/tmp/real'


def test_nothing_of_a_temporary_folder_is_shown_where_nothing_is_needed() -> None:
    assert service(spec(), "BindReadOnlyPaths") == ""


def test_folders_that_the_operator_names_for_writing_are_writable() -> None:
    engine = replace(
        releases.ENGINE,
        environment=(("HF_HOME", "/data/hf"), ("OTHER", "/data/other")),
        args=("--crash-dump-folder", "/data/crash", "--file-storage-path=/data/files"),
    )
    assert service(spec(engine=engine), "ReadWritePaths") == "-/data/crash -/data/files -/data/hf"


def test_a_boot_waits_for_the_disks_of_engine_and_model() -> None:
    mounts = settings(spec()).last("Unit", "RequiresMountsFor")
    assert mounts == "/opt/sglang/bin/python /models/DeepSeek-V4-Flash"


@pytest.mark.parametrize(("host", "waits"), [("127.0.0.1", False), ("::1", False), ("10.0.0.7", True), ("::", True)])
def test_only_an_engine_for_others_waits_for_the_network(host: str, waits: bool) -> None:  # noqa: FBT001 -- a parameter
    assert ("network-online.target" in settings(spec(host=host)).last("Unit", "Wants").split()) == waits


@pytest.mark.parametrize(
    ("user", "capabilities"), [(None, "CAP_DAC_READ_SEARCH"), ("root", "CAP_DAC_READ_SEARCH"), ("op", "")]
)
def test_root_may_read_and_nobody_may_more(user: str | None, capabilities: str) -> None:
    assert service(spec(user=user), "CapabilityBoundingSet") == capabilities


def binding(asked: HostSpec, on: Machine | None = None) -> tuple[str, str, str]:
    keys = ("CPUAffinity", "NUMAPolicy", "NUMAMask")
    cpus, policy, mask = (service(asked, key, on) for key in keys)
    return cpus, policy, mask


def test_b65_threads_and_memory_are_bound_to_the_node_of_the_roles_own_gpus() -> None:
    """B65: a CPU list and a memory mask that do not agree are worse than none."""
    upper = replace(modes.BUILT_IN["single-tp4"].roles[0], gpus=(4, 5, 6, 7))
    assert binding(spec()) == ("0-31", "bind", "0")
    assert binding(spec(mode=Mode(name="upper", roles=(upper,)))) == ("32-63", "bind", "1")


@pytest.mark.parametrize(
    ("host", "engine_may"),
    [
        (releases.numa(0, 0, 0, 0, 0, 0, 0, 0, count=1), True),
        (releases.numa(0, 1, 0, 1, 0, 1, 0, 1), True),
        (replace(releases.numa(), near={}), False),
        (replace(releases.numa(), near={gpu.pci_address: (0, 1) for gpu in releases.gpus().gpus}), False),
        (replace(releases.numa(), usable=frozenset({1})), False),
    ],
    ids=["one node", "interleaved", "unknown", "all on both", "the kernel has no node 0"],
)
def test_b65_without_certainty_nothing_is_bound_and_the_engine_does_not_guess(host: Numa, engine_may: bool) -> None:  # noqa: FBT001 -- a parameter
    on = releases.machine(numa=host)
    assert binding(spec(), on) == ("", "", "")
    (instance,) = releases.render(spec(), on).instances
    assert instance.binding is None
    assert ("SGLANG_AUTO_NUMA_BIND" in dict(instance.environment)) != engine_may


def test_b65_the_engines_own_binding_is_switched_off_where_the_unit_binds_unless_the_operator_wants_it() -> None:
    assert environment(spec())["SGLANG_AUTO_NUMA_BIND"] == "0"
    wants = replace(releases.ENGINE, environment=(("SGLANG_AUTO_NUMA_BIND", "1"),))
    assert environment(spec(engine=wants))["SGLANG_AUTO_NUMA_BIND"] == "1"


def test_b65_ranks_that_the_operator_binds_are_not_bound_by_the_unit() -> None:
    engine = replace(releases.ENGINE, args=("--numa-node", "0", "0", "1", "1"))
    build = releases.build()
    on = releases.machine(engine=replace(build, options=build.options | {"--numa-node"}))
    assert binding(spec(engine=engine), on) == ("", "", "")


def test_a_role_that_spans_nodes_is_told_with_its_gpus() -> None:
    notes = releases.render(spec("single-tp8")).notes
    assert "server on GPUs 0-7 has no binding, because it spans nodes: GPUs 0-3 on 0 and GPUs 4-7 on 1" in notes


def test_b64_gpus_are_those_that_were_looked_at_whatever_order_the_driver_lists_them_in() -> None:
    """B64: CUDA's own order is fastest first."""
    view = releases.gpus()
    turned = releases.machine(gpus=replace(view, gpus=tuple(reversed(view.gpus))))
    (instance,), (other,) = (releases.render(spec(), on).instances for on in (releases.machine(), turned))
    assert instance.gpu_uuids == tuple(gpu.uuid for gpu in view.gpus[:4])
    assert other == instance
