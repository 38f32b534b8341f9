"""What is kept in files comes back as it was, and anything else is refused with the path of the key."""

import json
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4ctl.model import Capacity, Instance, Limits, Phase, Release, RenderedFile, Role, RunState
from dsv4ctl.problems import Problem
from dsv4ctl.record import dump, dump_instance, dump_state, load, load_instance, load_state

INSTANCE = Instance(
    name="server",
    role=Role.SERVER,
    unit="dsv4-server.service",
    argv=("/opt/sglang/bin/python", "-m", "sglang.launch_server", "--port", "30001"),
    environment=(("CUDA_VISIBLE_DEVICES", "0,1"), ("HF_TOKEN", "hush")),
    host="127.0.0.1",
    port=30001,
    rendezvous_port=20001,
    tp=2,
    gpus=(0, 1),
    gpu_uuids=("GPU-0", "GPU-1"),
    model="/models/flash",
    served_model_name="dsv4",
    context_length=None,
    user=None,
    api_key_file="/etc/dsv4ctl/key",
    secrets_file="/run/dsv4ctl/server/secrets.yaml",
    limits=Limits(),
    digest="abc",
)
RELEASE = Release(
    digest="def",
    mode="single-tp4",
    instances=(INSTANCE,),
    files=(RenderedFile(path="/etc/systemd/system/dsv4-server.service", text="[Unit]\n"),),
    notes=("one",),
)
STATE = RunState(
    name="server",
    digest="abc",
    phase=Phase.WEIGHTS,
    words="loading weights 31/46",
    since=1.5,
    started_at=1.0,
    pid=42,
    capacity=Capacity(max_total_tokens=4096, available_gb=21.28),
)

text = st.text(max_size=12)
whole = st.integers(-(2**70), 2**70)
number = st.floats(allow_nan=False, allow_infinity=False)
limits = st.builds(Limits, **{field.name: whole for field in fields(Limits)})
instances = st.builds(
    Instance,
    name=text,
    role=st.sampled_from(Role),
    unit=text,
    argv=st.lists(text, max_size=3).map(tuple),
    environment=st.lists(st.tuples(text, text), max_size=3).map(tuple),
    host=text,
    port=whole,
    rendezvous_port=whole,
    tp=whole,
    gpus=st.lists(whole, max_size=3).map(tuple),
    gpu_uuids=st.lists(text, max_size=3).map(tuple),
    model=text,
    served_model_name=text,
    context_length=st.none() | whole,
    user=st.none() | text,
    api_key_file=st.none() | text,
    secrets_file=st.none() | text,
    limits=limits,
    digest=text,
)
capacities = st.builds(
    Capacity,
    max_total_tokens=whole,
    max_running_requests=st.none() | whole,
    context_length=st.none() | whole,
    available_gb=st.none() | number,
)
states = st.builds(
    RunState,
    name=text,
    digest=text,
    phase=st.sampled_from(Phase),
    words=text,
    since=number,
    started_at=number,
    pid=whole,
    engine_pid=whole,
    done=whole,
    total=whole,
    left_s=st.none() | whole,
    capacity=st.none() | capacities,
    exit=st.none() | whole,
    advice=text,
)
releases = st.builds(
    Release,
    digest=text,
    mode=text,
    instances=st.lists(instances, max_size=2).map(tuple),
    files=st.lists(st.builds(RenderedFile, path=text, text=text), max_size=2).map(tuple),
    notes=st.lists(text, max_size=2).map(tuple),
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)


@given(instances)
def test_an_instance_comes_back_with_the_argv_of_its_unit(instance: Instance) -> None:
    assert load_instance(dump_instance(instance), instance.argv) == replace(instance, environment=())


@given(states)
def test_a_state_comes_back(state: RunState) -> None:
    assert load_state(dump_state(state)) == state


@given(releases)
def test_a_release_comes_back_whole(release: Release) -> None:
    assert load(dump(release), Release) == release


def test_what_stands_in_the_unit_stands_nowhere_else() -> None:
    dumped = dump_instance(INSTANCE)
    assert "launch_server" not in dumped
    assert "hush" not in dumped
    assert not {"argv", "environment"} & set(json.loads(dumped))


def test_the_text_is_the_same_every_time_and_reads_well() -> None:
    dumped = dump_state(STATE)
    assert dumped == dump_state(load_state(dumped))
    assert dumped.endswith("}\n")
    keys = [line.split('"')[1] for line in dumped.splitlines() if line.startswith('  "')]
    assert keys == sorted(keys)


def test_a_record_of_before_a_field_with_a_default_is_still_read() -> None:
    older = {key: value for key, value in json.loads(dump_state(STATE)).items() if key not in ("advice", "exit")}
    assert load_state(json.dumps(older)) == STATE


def test_a_whole_number_written_for_a_float_is_read() -> None:
    found = load_state(json.dumps(json.loads(dump_state(STATE)) | {"since": 3}))
    assert (found.since, type(found.since)) == (3.0, float)


BAD_STATES: dict[str, tuple[dict[str, Any], str]] = {
    "string for number": ({"pid": "42"}, 'pid must be a whole number, and is "42"'),
    "true for number": ({"pid": True}, "pid must be a whole number, and is true"),
    "float for whole": ({"pid": 1.0}, "pid must be a whole number, and is 1.0"),
    "null for string": ({"words": None}, "words must be a string, and is null"),
    "no finite number": ({"since": float("inf")}, "since must be a number, and is Infinity"),
    "not a number": ({"since": float("nan")}, "since must be a number, and is NaN"),
    "huge whole for float": ({"since": 10**400}, "since must be a number, and is 1000"),
    "unknown phase": ({"phase": "lunch"}, 'phase must be one of gate, .*, and is "lunch"'),
    "list for phase": ({"phase": ["gate"]}, "phase must be one of gate, "),
    "deep": ({"capacity": {"max_total_tokens": "x"}}, "capacity.max_total_tokens must be a whole number"),
    "missing below": ({"capacity": {}}, "capacity.max_total_tokens is missing"),
    "list for object": ({"capacity": []}, r"capacity must be an object, and is \[\]"),
    "unknown key": ({"colour": 1}, "colour is not known"),
}


@pytest.mark.parametrize(("changed", "why"), BAD_STATES.values(), ids=BAD_STATES)
def test_a_wrong_value_is_refused_with_its_path(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(Problem, match=f"cannot read this run state: {why}") as caught:
        load_state(json.dumps(json.loads(dump_state(STATE)) | changed))
    assert caught.value.hint


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        ("files", [{"path": "/x"}], r"files\[0\].text is missing"),
        ("notes", ["a", 1], r"notes\[1\] must be a string, and is 1"),
        ("notes", "abc", 'notes must be a list, and is "abc"'),
        (
            "instances",
            [json.loads(dump(RELEASE))["instances"][0] | {"environment": [["A"]]}],
            "must have 2 parts",
        ),
        ("instances", [{}], r"instances\[0\].name is missing"),
    ],
)
def test_a_wrong_part_of_a_release_is_refused_with_its_path(path: str, value: object, why: str) -> None:
    with pytest.raises(Problem, match=why):
        load(json.dumps(json.loads(dump(RELEASE)) | {path: value}), Release)


@pytest.mark.parametrize("broken", ["", "{", "nope", '{"a": 1}{', "[" * 100_000, "1" * 10_000])
def test_what_is_no_json_is_refused_as_such(broken: str) -> None:
    with pytest.raises(Problem, match="cannot read this release: it is no JSON"):
        load(broken, Release)


def test_an_instance_file_may_not_bring_an_argv_of_its_own() -> None:
    smuggled = json.dumps(json.loads(dump_instance(INSTANCE)) | {"argv": ["/bin/sh"]})
    with pytest.raises(Problem, match="argv stands in the unit"):
        load_instance(smuggled, ("/opt/sglang/bin/python",))


@given(anything)
def test_any_json_is_read_or_refused(value: object) -> None:
    for reads in (load_state, lambda text: load(text, Release), lambda text: load_instance(text, ())):
        with pytest.raises(Problem, match="cannot read this"):
            reads(json.dumps(value))
