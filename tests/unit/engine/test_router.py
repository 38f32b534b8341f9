"""Placed workers -> the argv of the real router 0.3.2, by the options of its own --help."""

from dataclasses import replace
from pathlib import Path

import pytest

from dsv4ctl.engine import router
from dsv4ctl.engine.options import parse_help
from dsv4ctl.engine.router import Front, Worker, command
from dsv4ctl.model import EngineBuild, EngineSpec, HostSpec, Limits, Mode, Role, RouterSpec
from dsv4ctl.problems import EngineMissing

PYTHON = "/opt/sglang/bin/python"
HELP = Path(__file__).with_name("recorded") / "router-help-0.3.2.txt"
OPTIONS, CHOICES = parse_help(HELP.read_text())
TODAY = EngineBuild(python=PYTHON, version="0.3.2", launch=router.LAUNCH, options=OPTIONS, choices=CHOICES)
SPEC = HostSpec(mode=Mode(name="pd", roles=()), engine=EngineSpec(python=PYTHON), limits=Limits(drain_s=90))
PAIR = Front(
    host="0.0.0.0",  # noqa: S104 -- the case is about it
    port=30001,
    metrics_port=20024,
    workers=(
        Worker(role=Role.PREFILL, host="127.0.0.1", port=20002, bootstrap_port=20003),
        Worker(role=Role.DECODE, host="127.0.0.1", port=20012),
    ),
)
SERVERS = replace(PAIR, workers=tuple(Worker(role=Role.SERVER, host="127.0.0.1", port=p) for p in (20002, 20012)))


def following(words: tuple[str, ...], option: str) -> str:
    return words[words.index(option) + 1]


def asked(*args: str, policy: str | None = None) -> HostSpec:
    return replace(SPEC, router=RouterSpec(policy=policy, args=args))


def test_a_pair_is_named_with_the_bootstrap_port_of_its_prefill_and_every_port_is_pinned() -> None:
    assert command(SPEC, PAIR, TODAY, has_ready=True) == (
        *(PYTHON, "-m", "sglang_router.launch_router", "--host", "0.0.0.0", "--port", "30001"),  # noqa: S104
        *("--prometheus-host", "0.0.0.0", "--prometheus-port", "20024", "--policy", "round_robin"),  # noqa: S104
        *("--pd-disaggregation", "--prefill", "http://127.0.0.1:20002", "20003", "--decode", "http://127.0.0.1:20012"),
        *("--worker-startup-timeout-secs", "604800", "--worker-startup-check-interval", "2"),
        *("--health-check-endpoint", "/ready", "--health-check-interval-secs", "1", "--health-check-timeout-secs", "3"),
        *("--health-failure-threshold", "2", "--health-success-threshold", "1", "--disable-circuit-breaker"),
        *("--shutdown-grace-period-secs", "90"),
    )


def test_servers_are_chosen_among_by_what_they_have_cached() -> None:
    words = command(SPEC, SERVERS, TODAY, has_ready=True)
    at = words.index("--worker-urls")
    assert words[at : at + 3] == ("--worker-urls", "http://127.0.0.1:20002", "http://127.0.0.1:20012")
    assert following(words, "--policy") == "cache_aware"
    assert "--pd-disaggregation" not in words


def test_a_request_is_tried_for_longer_than_it_takes_to_find_out_that_a_server_has_died() -> None:
    """cache_aware sends it to the server that knows the prompt, whether that one answers or not."""
    words = command(SPEC, SERVERS, TODAY, has_ready=True)
    tries, first_ms, factor = (
        int(following(words, f"--retry-{name}")) for name in ("max-retries", "initial-backoff-ms", "backoff-multiplier")
    )
    waits_s = sum(first_ms / 1000 * factor**n for n in range(tries - 1))
    checks = int(following(words, "--health-failure-threshold"))
    # It varies each wait by a fifth.
    assert waits_s * 0.8 > (checks + 1) * int(following(words, "--health-check-interval-secs"))
    assert not [word for word in command(SPEC, PAIR, TODAY, has_ready=True) if word.startswith("--retry")]


def test_an_engine_without_ready_is_asked_for_its_health_with_more_patience_than_it_has_itself() -> None:
    words = command(SPEC, PAIR, TODAY, has_ready=False)
    assert "--health-check-endpoint" not in words
    # /health generates, and gives up after 20 s (SGLANG_HEALTH_CHECK_TIMEOUT).
    assert int(following(words, "--health-check-timeout-secs")) > 20


def test_a_router_that_can_ask_for_health_only_gets_the_times_for_it() -> None:
    older = replace(TODAY, options=OPTIONS - {"--health-check-endpoint"})
    assert command(SPEC, PAIR, older, has_ready=True) == command(SPEC, PAIR, TODAY, has_ready=False)


def test_habits_that_a_router_does_not_know_are_left_out() -> None:
    older = replace(TODAY, options=OPTIONS - {"--disable-circuit-breaker", "--worker-startup-check-interval"})
    words = command(SPEC, PAIR, older, has_ready=True)
    assert set(command(SPEC, PAIR, TODAY, has_ready=True)) - set(words) == {
        "--disable-circuit-breaker",
        "--worker-startup-check-interval",
        "2",
    } - set(words)


def test_what_a_router_must_know_and_does_not_is_told_at_once() -> None:
    older = replace(TODAY, options=OPTIONS - {"--prometheus-port", "--pd-disaggregation"})
    with pytest.raises(EngineMissing) as caught:
        command(asked("--no-such-thing"), PAIR, older, has_ready=True)
    assert str(caught.value).splitlines() == [
        "cannot start sglang-router 0.3.2 (/opt/sglang/bin/python) as configured:",
        "  router.metrics_port: it has no option --prometheus-port",
        "  mode: it has no option --pd-disaggregation",
        "  router.args: it has no option --no-such-thing",
    ]


def test_a_policy_that_this_router_does_not_know_is_told_with_those_that_it_knows() -> None:
    older = replace(TODAY, choices={"--policy": ("random", "round_robin")})
    with pytest.raises(EngineMissing, match="it knows no --policy manual; it knows random, round_robin"):
        command(asked(policy="manual"), PAIR, older, has_ready=True)


@pytest.mark.parametrize("front", [PAIR, SERVERS])
def test_the_router_never_goes_by_loads_that_it_cannot_read(front: Front) -> None:
    assert "power_of_two" not in command(SPEC, front, TODAY, has_ready=True)


def test_the_operators_own_habits_take_the_place_of_ours() -> None:
    words = command(asked("--health-check-interval-secs", "30", "--retry-max-retries=1"), PAIR, TODAY, has_ready=True)
    assert words[-3:] == ("--health-check-interval-secs", "30", "--retry-max-retries=1")
    assert words.count("--health-check-interval-secs") == 1


def test_an_ipv6_address_stands_in_brackets_but_for_the_metrics() -> None:
    words = command(SPEC, replace(PAIR, host="::1"), TODAY, has_ready=True)
    assert (following(words, "--host"), following(words, "--prometheus-host")) == ("[::1]", "::1")


def test_with_a_key_the_router_reads_it_from_its_file_and_no_argument_has_it() -> None:
    file = "/run/dsv4ctl/router/secrets.yaml"
    words = command(SPEC, replace(PAIR, secrets_file=file), TODAY, has_ready=True)
    assert words[:4] == (PYTHON, "-c", router.WITH_KEY, file)
    assert words[4:] == command(SPEC, PAIR, TODAY, has_ready=True)[3:]
    assert "--api-key" not in words


def test_every_option_that_is_ours_is_one_of_the_routers() -> None:
    assert set(router.MANAGED) <= OPTIONS
    assert {option for option in router.UNSUPPORTED if option.startswith("--")} <= OPTIONS
