"""Engines started by hand -> config: whatever was typed comes back from the unit that the config renders."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4ctl import config, modes
from dsv4ctl.byhand import asked, draft
from dsv4ctl.byhand.likeness import likeness
from dsv4ctl.byhand.main import Main, carried
from dsv4ctl.engine import readback
from dsv4ctl.engine.readback import Launch
from dsv4ctl.model import HostSpec, Identity, Process, Release, Role
from dsv4ctl.problems import Problem
from tests.releases import build, machine, render

PYTHON = "/opt/sglang/bin/python"
MODEL = "/models/DeepSeek-V4-Flash"


def process(pid: int = 4711) -> Process:
    return Process(
        identity=Identity("boot", pid, 1),
        parent_pid=1,
        session=1,
        group=1,
        uid=0,
        user="root",
        comm="python",
        command="",
        state="S",
        cgroup="/user.slice/user-0.slice/session-3.scope",
        started_at=0.0,
    )


def launch(words: list[str]) -> Launch:
    found = readback.launch((PYTHON, "-m", "sglang.launch_server", *words), build().options)
    assert found is not None
    return found


def engine(*words: str, gpus: tuple[int, ...] = (0, 1, 2, 3), pid: int = 4711, **environment: str) -> Main:
    """An engine of four ranks that was started with these words."""
    found = launch(["--model-path", MODEL, "--tp", str(len(gpus)), *words])
    wants = asked.read(found)
    return Main(
        process=process(pid),
        launch=found,
        python=PYTHON,
        environment={"HOME": "/root", "SHELL": "/bin/bash", **environment},
        host="127.0.0.1",
        port=int(wants.keys["port"]),
        asked=wants,
        model=MODEL,
        gpus=gpus,
        cpus=tuple(range(64)),
    )


def front(port: int = 30300, metrics_port: int = 29300) -> Main:
    wiped = readback.launch(("sglang::router",))
    assert wiped is not None
    return Main(
        process=process(4799),
        launch=wiped,
        python="/opt/router/bin/python",
        environment={},
        host="0.0.0.0",  # noqa: S104 -- named, not bound
        port=port,
        metrics_port=metrics_port,
    )


def spec_of(*mains: Main, key_file: str = "") -> HostSpec:
    return config.load(draft.draft(mains, key_file).text, {}, path="adopted.toml").spec


def rendered(made: Release, role: str = "server") -> Launch:
    (instance,) = (i for i in made.instances if i.role == role)
    found = readback.launch(instance.argv, build().options)
    assert found is not None
    return found


NUMBERS = st.integers(1, 2**20)
TYPED: dict[str, st.SearchStrategy[Any]] = {
    "--port": st.integers(25000, 32000),
    "--nccl-port": st.integers(20000, 24000),
    "--host": st.sampled_from(["127.0.0.1", "0.0.0.0", "::1"]),  # noqa: S104 -- typed, not bound
    "--context-length": NUMBERS,
    "--mem-fraction-static": st.sampled_from([0.5, 0.85, 0.9]),
    "--max-total-tokens": NUMBERS,
    "--max-running-requests": st.integers(1, 4096),
    "--chunked-prefill-size": st.one_of(st.just(-1), st.integers(1, 65536)),
    "--kv-cache-dtype": st.sampled_from(["auto", "fp8_e4m3"]),
    "--swa-full-tokens-ratio": st.sampled_from([0.1, 0.5]),
    "--cuda-graph-max-bs-decode": st.integers(1, 512),
    "--served-model-name": st.from_regex(r"[a-z0-9/][a-z0-9./-]{0,20}", fullmatch=True),
    "--tool-call-parser": st.just("deepseekv4"),
    "--reasoning-parser": st.just("deepseek-v4"),
    "--trust-remote-code": st.just(None),
    "--enable-metrics": st.just(None),
    "--sleep-on-idle": st.just(None),
    "--crash-dump-folder": st.just("/var/crash/100% $x \\ \"y\" 'z'"),
    "--json-model-override-args": st.just('{"a": "größe"}'),
}


@settings(max_examples=60, deadline=None)
@given(
    st.sets(st.sampled_from(sorted(TYPED))).flatmap(lambda names: st.fixed_dictionaries({n: TYPED[n] for n in names}))
)
def test_config_render_parse_gives_the_options_that_were_typed(typed: dict[str, Any]) -> None:
    words = [word for name, value in typed.items() for word in ((name,) if value is None else (name, str(value)))]
    main = engine(*words)

    found = rendered(render(spec_of(main)))

    assert {name: found.get(name) for name in typed} == {name: main.launch.get(name) for name in typed}
    assert found.get("--model-path") == MODEL
    assert found.get("--served-model-name") == (main.launch.get("--served-model-name") or MODEL)
    assert found.get("--port") == (main.launch.get("--port") or "30000")
    assert (found.get("--enable-metrics") is None) == ("--enable-metrics" not in typed)


@pytest.mark.parametrize(
    ("gpus", "mode"),
    [
        ((0, 1, 2, 3), "single-tp4"),
        ((4, 5, 6, 7), "single-tp4"),
        (tuple(range(8)), "single-tp8"),
        ((2, 3), "single-tp2"),
        ((3, 2, 1, 0), "single-tp4"),
    ],
)
def test_the_mode_and_the_gpus_are_those_that_it_runs_on(gpus: tuple[int, ...], mode: str) -> None:
    found = spec_of(engine(gpus=gpus)).mode
    assert (found.name, found.roles[0].tp, found.roles[0].gpus) == (mode, len(gpus), gpus)


HALF = ("--disaggregation-transfer-backend", "nixl", "--disaggregation-mode")


def pair(**environment: str) -> tuple[Main, Main]:
    prefill = engine(*HALF, "prefill", "--port", "30100", "--nccl-port", "20101", "--chunked-prefill-size", "8192")
    more = ("--port", "30200", "--nccl-port", "20111", "--sleep-on-idle")
    decode = engine(*HALF, "decode", *more, gpus=(4, 5, 6, 7), pid=4720, **environment)
    return prefill, decode


def test_a_prefill_a_decode_and_a_router_are_mode_pd() -> None:
    made = draft.draft((*pair(SGLANG_LOG_MS="1"), front()))
    found = config.load(made.text, {}, path="").spec

    assert (found.mode, found.host, found.port) == (modes.BUILT_IN["pd"], "0.0.0.0", 30300)  # noqa: S104
    assert (found.internal_port, found.router.metrics_port, found.router.python) == (
        20101,
        29300,
        "/opt/router/bin/python",
    )
    assert (found.transfer.backend, found.transfer.bootstrap_port) == ("nixl", 8998)
    assert found.memory.chunked_prefill_size == 8192
    assert "--sleep-on-idle of the decode is left out: engine.args is for all roles" in made.notes
    assert "left out, for they are not the same for all roles: SGLANG_LOG_MS" in made.notes
    assert any("wiped" in note for note in made.notes)
    assert rendered(render(found), Role.PREFILL).get("--disaggregation-bootstrap-port") == "8998"


def test_a_pair_without_a_router_gets_one_and_is_told_so() -> None:
    made = draft.draft(pair())
    assert any("no router runs" in note for note in made.notes)
    assert config.load(made.text, {}, path="").spec.mode.name == "pd"


def test_two_servers_behind_a_router_are_a_mode_and_without_one_are_not() -> None:
    both = engine("--port", "30001"), engine("--port", "30002", gpus=(4, 5, 6, 7), pid=4720)
    assert spec_of(*both, front()).mode.name == "dual-tp4"
    with pytest.raises(Problem, match=r"port 30001 .*port 30002") as raised:
        draft.draft(both)
    assert "dsv4ctl adopt PORT" in raised.value.hint


def test_no_secret_is_in_the_config_nor_in_what_differs() -> None:
    words = ("--api-key", "sk-1", "--admin-api-key=sk-2", "--ssl-keyfile-password", "sk-3")
    main = engine(*words, HF_TOKEN="sk-4", HTTPS_PROXY="http://u:sk-5@p:1")  # noqa: S106
    made = draft.draft((main,), "/root/key")
    one = likeness(main, render(config.load(made.text, {}, path="").spec).instances[0])

    assert "sk-" not in made.text + str(made.notes) + str(one.differences) + repr(made) + repr(main.asked)
    assert (made.api_key, made.key_file) == ("sk-1", "/root/key")
    assert 'api_key_file = "/root/key"' in made.text
    assert {"--admin-api-key", "HF_TOKEN", "HTTPS_PROXY"} <= {
        word.rstrip(":,") for note in made.notes for word in note.split()
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--pp-size", "2"), "--pp-size: pipeline parallelism"),
        (("--config", "/etc/x.yaml"), "--config: the options in /etc/x.yaml are not read"),
        (("--context-length", "many"), "--context-length: 'many' is not understood"),
        (("--smg-grpc-mode",), "--smg-grpc-mode: dsv4ctl proves an instance over HTTP"),
    ],
)
def test_what_no_config_can_say_is_left_out_and_named(words: tuple[str, ...], said: str) -> None:
    made = draft.draft((engine(*words),))
    assert any(note.startswith(said) and "pid 4711" in note for note in made.notes)
    assert config.load(made.text, {}, path="").spec.mode.name == "single-tp4"


def test_options_that_say_what_the_engine_does_anyway_are_no_loss() -> None:
    assert draft.draft((engine("--nnodes", "1", "--node-rank", "0"),)).notes == ()


def test_of_a_shells_environment_only_what_the_engine_reads_is_carried() -> None:
    found = carried(
        {"SGLANG_X": "1", "NCCL_DEBUG": "INFO", "SSH_TTY": "x", "CUDA_VISIBLE_DEVICES": "0", "HF_TOKEN": "t"}
    )
    assert (dict(found.variables), found.secrets) == ({"NCCL_DEBUG": "INFO", "SGLANG_X": "1"}, ("HF_TOKEN",))


def test_what_differs_is_told_with_the_engines_default_and_what_does_not_is_counted() -> None:
    main = engine("--context-length", "128Ki", NCCL_DEBUG="INFO")
    instance = render(spec_of(main), machine(engine=build())).instances[0]

    found = likeness(main, instance)

    told = {difference.what: (difference.by_hand, difference.rendered) for difference in found.differences}
    assert told["--nccl-port"] == ("one of 22000-29999, drawn", "20001")
    assert told["environment HOME"] == ("/root", "/var/cache/dsv4ctl/server")
    assert told["CPUs"] == ("0-63", "0-31 (NUMA node 0)")
    assert (
        not {"--context-length", "--port", "--tp-size", "--served-model-name", "environment NCCL_DEBUG"} & told.keys()
    )
    assert found.same >= 3
