import tomllib

import pytest

from dsv4ctl import config, modes
from dsv4ctl.config import checks
from dsv4ctl.config.faults import flag_of
from dsv4ctl.config.lines import lines
from dsv4ctl.config.schema import KEYS
from dsv4ctl.model import EngineSpec, HostSpec, Limits, MemorySpec, Mode, Role, RoleShape
from dsv4ctl.release import place

WHOLE = """\
mode = "mine"
host = "0:0:0:0:0:0:0:1"
port = 40000
internal_port = 21000
user = "sglang"
api_key_file = "/etc/dsv4ctl/api-key"
enable_metrics = false

[engine]
venv = "/opt/sglang/"
model = "/models/deepseek-ai/DeepSeek-V4-Flash"
version = "0.5.23+local"
tool_call_parser = "deepseekv4"
reasoning_parser = "deepseek-v4"
trust_remote_code = true
args = ["--moe-runner-backend", "marlin", '--json={"a": "b c"}', "two\\nlines"]

[engine.environment]
SGLANG_DSV4_FP4_EXPERTS = "0"
ODD = '''$x "%u" \\ é'''

[memory]
context_length = "512k"
mem_fraction_static = 0.88
max_total_tokens = "2M"
max_running_requests = 64
chunked_prefill_size = -1
max_prefill_tokens = "16k"
kv_cache_dtype = "fp8_e4m3"
swa_full_tokens_ratio = 1
cuda_graph_max_bs_decode = 64

[limits]
start = "1h"
stall = "20m"
driver = "5m"
drain = 60
engine_stop = "90s"
proof = "1m 30s"
watch = "10s"
unhealthy = "2m"
restart = "5s"
restart_max = "1m"
starts = 2

[modes.mine]
server = { tp = 2, gpus = "6-7" }
"""


def load(text: str | None, **flags: object) -> config.Effective:
    return config.load(text, {key.replace("__", "."): value for key, value in flags.items()}, path="config.toml")


def test_without_a_file_and_options_the_defaults_serve() -> None:
    assert load(None).spec == HostSpec(mode=modes.BUILT_IN["single-tp4"])


def test_an_empty_file_is_the_same_as_none() -> None:
    assert load("") == load(None)


def test_every_key_of_a_whole_file_reaches_the_spec() -> None:
    assert load(WHOLE).spec == HostSpec(
        mode=Mode(name="mine", roles=(RoleShape(role=Role.SERVER, tp=2, gpus=(6, 7)),)),
        host="::1",
        port=40000,
        internal_port=21000,
        user="sglang",
        api_key_file="/etc/dsv4ctl/api-key",
        enable_metrics=False,
        engine=EngineSpec(
            python="/opt/sglang/bin/python",
            model="/models/deepseek-ai/DeepSeek-V4-Flash",
            served_model_name="DeepSeek-V4-Flash",
            version="0.5.23+local",
            tool_call_parser="deepseekv4",
            reasoning_parser="deepseek-v4",
            trust_remote_code=True,
            args=("--moe-runner-backend", "marlin", '--json={"a": "b c"}', "two\nlines"),
            environment=(("SGLANG_DSV4_FP4_EXPERTS", "0"), ("ODD", '$x "%u" \\ é')),
        ),
        memory=MemorySpec(
            context_length=524288,
            mem_fraction_static=0.88,
            max_total_tokens=2097152,
            max_running_requests=64,
            chunked_prefill_size=-1,
            max_prefill_tokens=16384,
            kv_cache_dtype="fp8_e4m3",
            swa_full_tokens_ratio=1.0,
            cuda_graph_max_bs_decode=64,
        ),
        limits=Limits(
            start_s=3600,
            stall_s=1200,
            driver_s=300,
            drain_s=60,
            engine_stop_s=90,
            proof_s=90,
            watch_s=10,
            unhealthy_s=120,
            restart_s=5,
            restart_max_s=60,
            starts=2,
        ),
    )


def test_options_win_over_the_file() -> None:
    spec = load(
        WHOLE, mode="single-tp4", port="30001", memory__context_length="1M", engine__trust_remote_code=False
    ).spec
    assert (spec.mode.name, spec.port, spec.memory.context_length) == ("single-tp4", 30001, 1048576)
    assert spec.engine.trust_remote_code is False
    assert spec.memory.max_running_requests == 64


@pytest.mark.parametrize("text", [None, "", '[memory]\nmem_fraction_static = "auto"\n'])
def test_the_fraction_is_automatic_unless_it_is_set(text: str | None) -> None:
    assert config.load(text, {}, path="c").spec.memory.mem_fraction_static is None


def test_an_automatic_fraction_by_option_takes_the_place_of_the_files() -> None:
    text = "[memory]\nmem_fraction_static = 0.8\n"

    assert config.load(text, {"memory.mem_fraction_static": "auto"}, path="c").spec.memory.mem_fraction_static is None


def test_an_option_that_was_not_given_changes_nothing() -> None:
    assert load(WHOLE, port=None, engine__python=None) == load(WHOLE)


@pytest.mark.parametrize("gpus", ["4-7", "4,5,6,7", [4, 5, 6, 7]])
def test_gpus_replace_those_of_the_mode(gpus: object) -> None:
    assert load(None, gpus=gpus).spec.mode.roles[0].gpus == (4, 5, 6, 7)


def test_no_gpus_is_an_engine_on_a_cpu() -> None:
    text = "[modes.cpu]\nserver = { tp = 1, gpus = [] }\n"
    assert load(text, mode="cpu").spec.mode.roles == (RoleShape(role=Role.SERVER, tp=1, gpus=()),)
    assert load("gpus = []").spec.mode.roles[0].gpus == ()


def shapes(text: str, mode: str) -> list[tuple[Role, int, tuple[int, ...]]]:
    return [(shape.role, shape.tp, shape.gpus) for shape in load(text, mode=mode).spec.mode.roles]


def test_of_a_built_in_mode_the_file_may_change_a_role_and_the_rest_stays_as_it_is_built_in() -> None:
    assert shapes("[modes.pd]\ndecode = { gpus = [0, 1, 2, 3] }\nprefill.gpus = '4-7'", "pd") == [
        (Role.PREFILL, 4, (4, 5, 6, 7)), (Role.DECODE, 4, (0, 1, 2, 3)), (Role.ROUTER, 0, ()),
    ]  # fmt: skip
    assert shapes("[modes.pd.decode]\ntp = 2\ngpus = [4, 5]", "pd") == [
        (Role.PREFILL, 4, (0, 1, 2, 3)), (Role.DECODE, 2, (4, 5)), (Role.ROUTER, 0, ()),
    ]  # fmt: skip


def test_the_pair_of_one_rank_each_runs_on_a_cpu_where_no_gpus_are_given() -> None:
    ranks = "[modes.pd]\nprefill.tp = 1\ndecode.tp = 1\n"
    on_a_cpu = [(Role.PREFILL, 1, ()), (Role.DECODE, 1, ()), (Role.ROUTER, 0, ())]
    assert shapes(f"gpus = []\n{ranks}", "pd") == on_a_cpu
    assert shapes("[modes.pd]\nprefill = { tp = 1, gpus = [] }\ndecode = { tp = 1, gpus = [] }", "pd") == on_a_cpu
    assert [r.gpus for r in load(ranks, mode="pd", gpus="none").spec.mode.roles] == [(), (), ()]
    assert [r.gpus for r in load(ranks, mode="pd", gpus="6,7").spec.mode.roles] == [(6,), (7,), ()]


def test_a_built_in_mode_that_the_file_changes_is_the_one_that_serves_by_default() -> None:
    assert load("gpus = []\n[modes.single-tp4]\nserver.tp = 1").spec.mode == Mode(
        name="single-tp4", roles=(RoleShape(role=Role.SERVER, tp=1, gpus=()),)
    )


def test_two_servers_of_a_built_in_mode_have_as_many_ranks_each_and_share_out_the_gpus() -> None:
    assert shapes("[modes.dual-tp4]\nserver = { tp = 2, gpus = [7, 6, 5, 4] }", "dual-tp4") == [
        (Role.SERVER, 2, (7, 6)), (Role.SERVER, 2, (5, 4)), (Role.ROUTER, 0, ()),
    ]  # fmt: skip


def test_a_built_in_mode_of_which_nothing_is_changed_is_as_it_is() -> None:
    assert load("[modes.pd]\ndecode = {}", mode="pd").spec.mode == modes.BUILT_IN["pd"]


def test_an_interpreter_by_option_takes_the_place_of_the_files_venv_and_the_other_way_round() -> None:
    assert (
        load('[engine]\nvenv = "/opt/a"', engine__python="/opt/b/bin/python").spec.engine.python == "/opt/b/bin/python"
    )
    assert (
        load('[engine]\npython = "/opt/a/bin/python"', engine__venv="/opt/b").spec.engine.python == "/opt/b/bin/python"
    )


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("/models/DeepSeek-V4-Flash/", "DeepSeek-V4-Flash"),
        ("/hub/models--deepseek-ai--DeepSeek-V4-Flash/snapshots/0123abc", "DeepSeek-V4-Flash"),
        ("/models/snapshots/mine", "mine"),
    ],
)
def test_a_model_is_served_under_the_name_of_its_folder(model: str, name: str) -> None:
    assert load(None, engine__model=model).spec.engine.served_model_name == name


def test_a_served_name_that_is_given_wins_over_the_folder() -> None:
    assert load(None, engine__model="/m/a:b", engine__served_model_name="ab").spec.engine.served_model_name == "ab"


def test_every_value_knows_the_line_or_the_option_it_came_from() -> None:
    sources = load(WHOLE, port="40001", gpus="0-1").sources
    assert sources["mode"] == "config.toml:1"
    assert sources["port"] == "--port"
    assert sources["gpus"] == "--gpus"
    assert sources["engine.args"] == "config.toml:16"
    assert sources["engine.environment.ODD"] == "config.toml:20"
    assert sources["memory.context_length"] == "config.toml:23"
    assert sources["limits.starts"] == "config.toml:44"
    assert sources["modes.mine.server.tp"] == "config.toml:47"
    assert load("port = 30001").sources["host"] == "default"


def test_values_that_follow_from_others_say_so() -> None:
    sources = load(WHOLE).sources
    assert sources["engine.python"] == "config.toml:10 (engine.venv)"
    assert sources["engine.served_model_name"] == "config.toml:11 (engine.model)"
    assert sources["gpus"] == "config.toml:1 (mode)"


def test_every_key_has_a_source() -> None:
    assert set(KEYS) <= set(load(None).sources)


def test_every_key_has_an_option_name_of_its_own() -> None:
    assert len({flag_of(key) for key in KEYS}) == len(KEYS)


def test_the_ports_set_aside_are_those_that_a_release_places() -> None:
    assert checks.PORTS_EACH == place.PORTS_EACH


def test_lines_are_right_behind_strings_comments_and_lists_over_several_lines() -> None:
    text = '''\
a = """
b = 1
[c]
"""   # ] }
d = [
  "[", # [
  'e = 1',
]
"f.g" = 1
[x . "y z"]
h.i = { j = 1, "k" = '}' }
[[t]]
l = 1
'''
    tomllib.loads(text)
    assert lines(text) == {
        "a": 1,
        "d": 5,
        "f.g": 9,
        "x.y z": 10,
        "x.y z.h": 11,
        "x.y z.h.i": 11,
        "x.y z.h.i.j": 11,
        "x.y z.h.i.k": 11,
        "t": 12,
        "t.l": 13,
    }


def test_line_ends_of_windows_count_as_one() -> None:
    assert lines("a = 1\r\nb = 2\r\n") == {"a": 1, "b": 2}
