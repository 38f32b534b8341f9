"""A placed role -> argv and environment, with the options of two real SGLangs."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dsv4ctl.config import engine_args
from dsv4ctl.engine import sglang
from dsv4ctl.engine.options import parse_help
from dsv4ctl.engine.sglang import Seat, command, environment, managed_options, secrets_yaml, served_model_name
from dsv4ctl.model import EngineBuild, EngineSpec, HostSpec, MemorySpec, Mode, Role, TransferSpec
from dsv4ctl.problems import BadConfig, EngineMissing, Problem

RECORDED = Path(__file__).with_name("recorded")
PYTHON = "/opt/sglang/bin/python"
SEAT = Seat(role=Role.SERVER, tp=4, host="127.0.0.1", port=30001, rendezvous_port=20001)
MODE = Mode(name="single-tp4", roles=())
WHOLE_MEMORY = MemorySpec(
    context_length=524288,
    mem_fraction_static=0.85,
    max_total_tokens=1000000,
    max_running_requests=64,
    chunked_prefill_size=-1,
    max_prefill_tokens=16384,
    kv_cache_dtype="fp8_e4m3",
    swa_full_tokens_ratio=0.1,
    cuda_graph_max_bs_decode=64,
)


def built(version: str) -> EngineBuild:
    options, choices = parse_help((RECORDED / f"help-{version}.txt").read_text())
    return EngineBuild(python=PYTHON, version=version, options=options, choices=choices)


QUIET = (sglang.QUIET, "/health", "/ready", "/metrics", "/v1/loads", "/v1/models")
TODAY = built("0.5.23")
OLDER = built("0.5.3")


def spec(memory: MemorySpec | None = None, **keys: Any) -> HostSpec:
    engine = EngineSpec(**({"python": PYTHON, "model": "/models/flash"} | keys))
    return HostSpec(mode=MODE, engine=engine, memory=memory or MemorySpec())


def faults(of: HostSpec, build: EngineBuild, seat: Seat = SEAT) -> list[str]:
    with pytest.raises(EngineMissing) as caught:
        command(of, seat, build)
    return str(caught.value).splitlines()[1:]


def test_a_bare_configuration_gives_every_port_and_name_explicitly() -> None:
    assert command(spec(), SEAT, TODAY) == (
        *(PYTHON, "-m", "sglang.launch_server"),
        *("--model-path", "/models/flash", "--served-model-name", "/models/flash"),
        *("--host", "127.0.0.1", "--port", "30001", "--tp-size", "4", "--nccl-port", "20001", "--enable-metrics"),
        *QUIET,
    )


def test_every_key_of_the_configuration_reaches_the_engine_under_its_own_name() -> None:
    whole = spec(
        memory=WHOLE_MEMORY,
        served_model_name="dsv4",
        tool_call_parser="deepseekv4",
        reasoning_parser="deepseek-v4",
        trust_remote_code=True,
        args=("--attention-backend", "dsv4", "--log-level=debug"),
    )
    seat = replace(SEAT, secrets_file="/run/dsv4ctl/server/secrets.yaml")
    assert command(replace(whole, enable_metrics=False), seat, TODAY)[3:] == (
        *("--model-path", "/models/flash", "--served-model-name", "dsv4"),
        *("--host", "127.0.0.1", "--port", "30001", "--tp-size", "4", "--nccl-port", "20001"),
        *("--context-length", "524288", "--mem-fraction-static", "0.85", "--max-total-tokens", "1000000"),
        *("--max-running-requests", "64", "--chunked-prefill-size", "-1", "--max-prefill-tokens", "16384"),
        *("--kv-cache-dtype", "fp8_e4m3", "--swa-full-tokens-ratio", "0.1", "--cuda-graph-max-bs-decode", "64"),
        *("--tool-call-parser", "deepseekv4", "--reasoning-parser", "deepseek-v4", "--trust-remote-code"),
        *("--config", "/run/dsv4ctl/server/secrets.yaml"),
        *QUIET,
        *("--attention-backend", "dsv4", "--log-level=debug"),
    )


def test_what_is_asked_every_few_seconds_is_not_logged_where_a_build_can_leave_it_out_and_nobody_says_otherwise() -> (
    None
):
    assert sglang.QUIET not in command(spec(), SEAT, OLDER)
    theirs = spec(args=(sglang.QUIET, "/health"))
    assert command(theirs, SEAT, TODAY).count(sglang.QUIET) == 1
    assert command(theirs, SEAT, TODAY)[-2:] == (sglang.QUIET, "/health")


def test_no_memory_key_is_forgotten_by_the_table() -> None:
    keys = {option.key for option in sglang.OPTIONS}
    assert {f"memory.{field.name}" for field in fields(MemorySpec)} <= keys


def test_where_only_the_older_spelling_exists_it_is_used() -> None:
    words = command(spec(memory=MemorySpec(cuda_graph_max_bs_decode=64)), SEAT, OLDER)
    assert words[words.index("--cuda-graph-max-bs") + 1] == "64"
    assert "--cuda-graph-max-bs-decode" not in words


def test_where_only_an_alias_exists_it_is_used() -> None:
    build = replace(TODAY, options=TODAY.options - {"--tp-size"})
    assert "--tensor-parallel-size" in command(spec(), SEAT, build)


def test_an_option_that_exists_as_the_beginning_of_others_only_does_not_exist() -> None:
    build = replace(TODAY, options=TODAY.options - {"--max-total-tokens"} | {"--max-total-tokens-per-rank"})
    assert faults(spec(memory=WHOLE_MEMORY), build) == [
        "  memory.max_total_tokens: it has no option --max-total-tokens"
    ]


def test_all_that_a_build_does_not_know_is_told_at_once_with_key_option_version_and_interpreter() -> None:
    asked = spec(
        memory=MemorySpec(kv_cache_dtype="fp8", swa_full_tokens_ratio=0.1, cuda_graph_max_bs_decode=8),
        tool_call_parser="deepseekv4",
        reasoning_parser="deepseek-v4",
        args=("--dsv4-attn-backend", "auto", "--max_queued_requests=5"),
    )
    build = replace(OLDER, options=OLDER.options - {"--cuda-graph-max-bs", "--nccl-port"})
    with pytest.raises(EngineMissing) as caught:
        command(asked, SEAT, build)
    assert str(caught.value).splitlines() == [
        "cannot start SGLang 0.5.3 (/opt/sglang/bin/python) as configured:",
        "  internal_port: it has no option --nccl-port",
        "  memory.kv_cache_dtype: it knows no --kv-cache-dtype fp8; it knows auto, fp8_e5m2, fp8_e4m3",
        "  memory.cuda_graph_max_bs_decode: it has no option --cuda-graph-max-bs-decode nor --cuda-graph-max-bs",
        "  engine.tool_call_parser: it knows no --tool-call-parser deepseekv4; did you mean deepseekv3?",
        "  engine.reasoning_parser: it knows no --reasoning-parser deepseek-v4; did you mean deepseek-v3?",
        "  engine.args: it has no option --dsv4-attn-backend; did you mean --attention-backend?",
        "  engine.args: it has no option --max_queued_requests; did you mean --max-queued-requests?",
    ]
    assert caught.value.hint.startswith("/opt/sglang/bin/python -m sglang.launch_server --help")


def test_the_two_parsers_spell_the_model_differently_and_that_is_what_is_meant() -> None:
    asked = spec(tool_call_parser="deepseek-v4", reasoning_parser="deepseekv4")
    assert faults(asked, TODAY) == [
        "  engine.tool_call_parser: it knows no --tool-call-parser deepseek-v4; did you mean deepseekv4?",
        "  engine.reasoning_parser: it knows no --reasoning-parser deepseekv4; did you mean deepseek-v4?",
    ]


def test_a_key_file_on_an_engine_without_config_files_is_told_as_such() -> None:
    build = replace(TODAY, options=TODAY.options - {"--config"})
    seat = replace(SEAT, secrets_file="/run/dsv4ctl/server/secrets.yaml")
    assert faults(spec(), build, seat) == ["  api_key_file: it has no option --config"]


def test_values_of_extra_arguments_are_not_taken_for_options() -> None:
    asked = spec(args=("--json-model-override-args", '{"--x": 1}', "--random-seed", "-1", "--stream-interval=2"))
    assert command(asked, SEAT, TODAY)[-5:] == asked.engine.args


@pytest.mark.parametrize(
    ("asked", "seat", "build", "why"),
    [
        (spec(), replace(SEAT, role=Role.ROUTER), TODAY, "cannot start an engine as a router"),
        (spec(model=None), SEAT, TODAY, "engine.model is not configured"),
        (spec(), SEAT, replace(TODAY, options=frozenset()), "cannot tell what SGLang 0.5.23"),
        (spec(served_model_name="a:b"), SEAT, TODAY, "cannot hold a colon"),
        (spec(model="/models/a:b"), SEAT, TODAY, "engine.served_model_name: a served name cannot hold a colon"),
    ],
)
def test_what_cannot_become_a_command_is_refused(asked: HostSpec, seat: Seat, build: EngineBuild, why: str) -> None:
    with pytest.raises(Problem, match=why):
        command(asked, seat, build)


def test_a_word_with_a_leading_dash_stays_the_value_of_its_option() -> None:
    assert "--served-model-name=-dsv4" in command(spec(served_model_name="-dsv4"), SEAT, TODAY)


def test_the_served_name_is_the_path_unless_it_is_configured() -> None:
    assert served_model_name(spec()) == "/models/flash"
    assert served_model_name(spec(served_model_name="dsv4")) == "dsv4"


def test_every_managed_option_names_its_key_and_is_refused_among_the_extra_arguments() -> None:
    managed = managed_options()
    assert managed["--model"] == managed["--model-path"] == "engine.model"
    assert managed["--cuda-graph-max-bs"] == "memory.cuda_graph_max_bs_decode"
    assert managed["--api-key"] == "api_key_file"
    assert [option for option in managed if not engine_args.refused(option)] == []


def test_gpus_are_named_by_index_in_pci_order_since_sglang_reads_numbers_only() -> None:
    given_words = dict(environment(spec(), replace(SEAT, gpus=(4, 5, 6, 7)), "/var/cache/dsv4ctl/server"))
    assert given_words["CUDA_VISIBLE_DEVICES"] == "4,5,6,7"
    assert given_words["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert [int(word) for word in given_words["CUDA_VISIBLE_DEVICES"].split(",")] == [4, 5, 6, 7]


def test_an_engine_without_gpus_sees_none() -> None:
    assert dict(environment(spec(), SEAT, "/c"))["CUDA_VISIBLE_DEVICES"] == ""


def test_caches_lie_in_the_cache_folder_and_crashes_are_short() -> None:
    given_words = dict(environment(spec(), replace(SEAT, gpus=(0,)), "/var/cache/dsv4ctl/server"))
    assert given_words["SGLANG_CACHE_DIR"] == "/var/cache/dsv4ctl/server/sglang"
    assert given_words["HOME"] == "/var/cache/dsv4ctl/server"
    assert given_words["SGLANG_PYSPY_DUMP_BEFORE_CRASH"] == given_words["SGLANG_CUDA_COREDUMP_BEFORE_CRASH"] == "0"


def test_the_operators_variables_win_but_for_the_gpus() -> None:
    theirs = (("SGLANG_PYSPY_DUMP_BEFORE_CRASH", "1"), ("HOME", "/h"), ("CUDA_VISIBLE_DEVICES", "0"), ("X", 'a"$b'))
    given_words = dict(environment(spec(environment=theirs), replace(SEAT, gpus=(4,)), "/c"))
    assert given_words["SGLANG_PYSPY_DUMP_BEFORE_CRASH"] == "1"
    assert (given_words["HOME"], given_words["X"]) == ("/h", 'a"$b')
    assert given_words["CUDA_VISIBLE_DEVICES"] == "4"


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::", "::1", "10.1.2.3"])  # noqa: S104
def test_no_proxy_covers_every_address_of_our_own_and_keeps_the_operators(host: str) -> None:
    theirs = (
        ("http_proxy", "http://proxy:3128"),
        ("NO_PROXY", "corp.example, 10.9.9.9"),
        ("SGLANG_HOST_IP", "10.1.2.9"),
    )
    given_words = dict(environment(spec(environment=theirs), replace(SEAT, host=host), "/c"))
    covered = given_words["no_proxy"].split(",")
    assert given_words["NO_PROXY"] == given_words["no_proxy"]
    assert {"localhost", "127.0.0.1", host, "10.1.2.9", "corp.example", "10.9.9.9"} <= set(covered)
    assert len(covered) == len(set(covered))
    assert ("::1" in covered) == (":" in host)
    assert given_words["http_proxy"] == "http://proxy:3128"


NASTY = [
    "on",
    "null",
    "123",
    "1e3",
    "a: b",
    "#x",
    "a #b",
    "{x}",
    "*a",
    "&a",
    "!t",
    "%d",
    "@x",
    "'",
    '"',
    "\\",
    "\\n",
    "a\\",
]


@pytest.mark.parametrize("key", NASTY)
def test_a_nasty_key_arrives_unchanged(key: str) -> None:
    assert yaml.safe_load(secrets_yaml(key)) == {"api-key": key}


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1))
def test_any_key_arrives_unchanged_or_is_refused(key: str) -> None:
    try:
        text = secrets_yaml(key)
    except BadConfig:
        assert key != key.strip() or key.startswith("-")
    else:
        assert yaml.safe_load(text) == {"api-key": key}


@pytest.mark.parametrize(
    "key", ["", " sesame", "sesame ", "sesame\n", "ses\tame", "sesäme", "sesame\U0001f511", "-sesame", "sesame\x7f"]
)
def test_a_key_that_the_engine_cannot_take_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(BadConfig, match="cannot use the API key") as caught:
        secrets_yaml(key)
    assert "ses" not in str(caught.value) + caught.value.hint


PREFILL = replace(SEAT, role=Role.PREFILL, port=20002, bootstrap_port=20003, gpus=(0, 1, 2, 3))
DECODE = replace(SEAT, role=Role.DECODE, port=20012, rendezvous_port=20011, gpus=(4, 5, 6, 7))


def test_the_halves_of_a_pair_are_told_their_part_the_way_and_the_prefill_alone_its_bootstrap_port() -> None:
    before = command(replace(spec(), enable_metrics=False), PREFILL, TODAY)[: -len(QUIET)]
    part = ("--enable-metrics", "--disaggregation-mode", "prefill", "--disaggregation-transfer-backend", "nixl")
    # The counters are what the proof of the pair reads, so that they are there whatever is configured.
    assert before[-7:] == (*part, "--disaggregation-bootstrap-port", "20003")
    assert command(spec(), DECODE, TODAY)[: -len(QUIET)][-4:] == (*("--disaggregation-mode", "decode"), *part[-2:])


def test_a_way_to_hand_over_that_a_build_does_not_know_is_told_with_those_it_knows() -> None:
    asked = replace(spec(), transfer=TransferSpec(backend="mooncake_tcp"))
    assert "--disaggregation-transfer-backend" in command(asked, PREFILL, TODAY)
    (told,) = faults(asked, OLDER, PREFILL)
    assert told.startswith("  transfer.backend: it knows no --disaggregation-transfer-backend mooncake_tcp;")


@pytest.mark.parametrize("seat", [PREFILL, DECODE])
def test_the_halves_of_a_pair_meet_on_this_host_and_hand_over_from_gpu_to_gpu(seat: Seat) -> None:
    found = dict(environment(spec(), seat, "/c"))
    assert found["SGLANG_HOST_IP"] == "127.0.0.1"
    assert "cuda_ipc" in found["UCX_TLS"].split(",")
    assert "UCX_TLS" not in dict(environment(spec(), replace(seat, gpus=()), "/c"))
    assert "UCX_TLS" not in dict(environment(replace(spec(), transfer=TransferSpec(backend="mooncake")), seat, "/c"))


def test_the_operators_own_address_and_transports_win() -> None:
    theirs = (("SGLANG_HOST_IP", "10.1.2.9"), ("UCX_TLS", "all"))
    found = dict(environment(spec(environment=theirs), PREFILL, "/c"))
    assert (found["SGLANG_HOST_IP"], found["UCX_TLS"]) == ("10.1.2.9", "all")
    assert "10.1.2.9" in found["no_proxy"].split(",")


def test_a_server_has_no_part_in_a_pair() -> None:
    assert not {"SGLANG_HOST_IP", "UCX_TLS"} & set(dict(environment(spec(), replace(SEAT, gpus=(0,)), "/c")))
    assert not [word for word in command(spec(), SEAT, TODAY) if "disaggregation" in word]
