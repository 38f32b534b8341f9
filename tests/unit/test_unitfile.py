"""Unit files as text: what is escaped comes back, what cannot be is refused, what verify lets pass is named."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4ctl import unitfile

# What a unit file can carry: no NUL, no surrogates, none of Unicode's noncharacters.
CARRIED = st.text(
    st.characters(codec="utf-8", exclude_characters="\0").filter(
        lambda c: not (0xFDD0 <= ord(c) <= 0xFDEF or ord(c) & 0xFFFE == 0xFFFE)
    )
)
UNIT = """\
[Unit]
StartLimitIntervalSec=11000
StartLimitBurst=4
[Service]
Type=notify
NotifyAccess=main
ExecStart=:/opt/dsv4ctl/bin/python -P -m dsv4ctl.supervise /i.json -- /opt/sglang/bin/python -m sglang.launch_server
TimeoutStartSec=2400
TimeoutStopSec=290
KillMode=mixed
RestartSec=15
[X-Dsv4ctl]
StartSec=2160
ProofSec=120
DrainSec=120
EngineStopSec=80
"""


@given(st.lists(CARRIED))
def test_every_word_of_a_command_comes_back_as_it_was(words: list[str]) -> None:
    (value,) = unitfile.parse([f"[Service]\nExecStart={unitfile.command(['/bin/x', *words])}\n"]).all(
        "Service", "ExecStart"
    )
    assert unitfile.words(value) == (":/bin/x", *words)


@given(CARRIED)
def test_every_value_of_a_variable_comes_back_as_it_was(value: str) -> None:
    (line,) = unitfile.parse([f"[Service]\nEnvironment={unitfile.assignment('A', value)}\n"]).all(
        "Service", "Environment"
    )
    assert unitfile.words(line) == (f"A={value}",)


@given(
    st.one_of(
        st.lists(CARRIED, min_size=1).map(lambda words: unitfile.command(["/x", *words])), CARRIED.map(unitfile.word)
    )
)
def test_no_control_character_reaches_the_file_and_no_line_goes_on_by_accident(text: str) -> None:
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text)
    assert all(line.endswith(" \\") and not line.endswith("\\\\") for line in text.split("\n")[:-1])
    assert not text.endswith("\\")


def test_plain_words_are_left_readable() -> None:
    assert unitfile.word("/opt/sglang/bin/python3.11") == "/opt/sglang/bin/python3.11"
    assert unitfile.assignment("CUDA_DEVICE_ORDER", "PCI_BUS_ID") == "CUDA_DEVICE_ORDER=PCI_BUS_ID"
    assert unitfile.assignment("CUDA_VISIBLE_DEVICES", "") == "CUDA_VISIBLE_DEVICES="


def test_percent_is_doubled_and_dollar_is_not_because_expansion_is_off() -> None:
    assert unitfile.command(["/x", "100%u", "$HOME"]) == ':/x "100%%u" "$HOME"'
    assert unitfile.assignment("A", "$b %z") == '"A=$b %%z"'


def test_a_command_stands_one_option_a_line() -> None:
    text = unitfile.command(["/x/python", "-m", "m", "/i.json", "--", "/e/python", "--port", "1", "--flag", "a b"])
    assert text.split(" \\\n    ") == [":/x/python -m m /i.json --", "/e/python", "--port 1", '--flag "a b"']


@pytest.mark.parametrize(
    ("value", "why"),
    [("a\0b", "NUL"), ("a\udcffb", "UTF-8"), ("a￾b", "UTF-8"), ("﷐", "UTF-8"), ("x" * 131072, "131071 at most")],
)
def test_what_cannot_be_carried_is_refused_with_the_name_of_its_key(value: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"^--model-path: .*{why}"):
        unitfile.command(["/x", "--model-path", value])
    with pytest.raises(ValueError, match=f"^HF_HOME: .*{why}"):
        unitfile.assignment("HF_HOME", value)


@pytest.mark.parametrize("program", ["python", "./python", "", "/a'b/python", '/a"b', "/a\\b", "/a\nb"])
def test_a_program_that_systemd_would_not_start_is_refused(program: str) -> None:
    with pytest.raises(ValueError, match="cannot be started by systemd"):
        unitfile.command([program, "-V"])


@pytest.mark.parametrize("name", ["", "1A", "A-B", "A B", "Ä", "A="])
def test_a_name_that_is_no_variable_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="name of an environment variable"):
        unitfile.assignment(name, "x")


@pytest.mark.parametrize("value", [" a", "a ", "a\\", "a\tb", "a\nb"])
def test_a_value_to_the_end_of_the_line_is_refused_where_systemd_would_change_it(value: str) -> None:
    with pytest.raises(ValueError, match="cannot carry here"):
        unitfile.plain(value)


@pytest.mark.parametrize("value", ["relative", "/a/../b", "/a\nb"])
def test_a_path_that_systemd_would_drop_from_a_list_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match=r"absolute path|cannot carry"):
        unitfile.path(value)


def test_a_path_with_a_colon_is_quoted_because_a_colon_splits_bind_paths() -> None:
    assert unitfile.path("/srv/a:b") == '"/srv/a:b"'
    assert unitfile.path("/srv/a b%u") == '"/srv/a b%%u"'


def test_prose_stays_on_its_line() -> None:
    assert unitfile.prose("a\nb %u\udcff\\") == "a b %%u"


def test_lines_go_on_past_comments_and_an_empty_assignment_resets() -> None:
    text = "[Service]\n# c=1\nA=1 \\\n# between\n  2\nB=x\nB=\nB=y\n;d=2\n[Install]\nB=z"
    settings = unitfile.parse([text])
    assert settings.last("Service", "A").split() == ["1", "2"]
    assert settings.all("Service", "B") == ("y",)
    assert not settings.all("Service", "# c")


def test_a_drop_in_overrides_the_unit() -> None:
    assert unitfile.parse([UNIT, "[Service]\nTimeoutStopSec=5\n"]).last("Service", "TimeoutStopSec") == "5"


@pytest.mark.parametrize(
    ("span", "seconds"),
    [
        ("90", 90),
        ("5min 20s", 320),
        ("1h", 3600),
        ("1.5m", 90),
        ("250ms", 0.25),
        ("infinity", float("inf")),
        ("soon", None),
        ("", None),
    ],
)
def test_time_spans_are_read_as_systemd_reads_them(span: str, seconds: float | None) -> None:
    assert unitfile.seconds(span) == seconds


def test_directives_that_came_later_are_left_out_with_their_continued_lines() -> None:
    text = "[Service]\nRestartSteps=3 \\\n  4\nRestart=no\n[X-Dsv4ctl]\nDigest=1\n"
    assert unitfile.only_known(text, 253) == "[Service]\nRestart=no\n[X-Dsv4ctl]\nDigest=1\n"
    assert unitfile.only_known(text, 254) == text


def test_a_directive_that_nobody_dated_is_a_slip_in_the_template() -> None:
    with pytest.raises(KeyError, match="RestartStepz"):
        unitfile.only_known("[Service]\nRestartStepz=3\n", 257)


def test_a_good_unit_has_no_objections() -> None:
    assert unitfile.lint(UNIT) == ()


@pytest.mark.parametrize(
    ("drop_in", "objection"),
    [
        ("[Service]\nKillMode=process\n", "KillMode=process: .* survive"),
        ("[Service]\nKillMode=none\n", "KillMode=none: .* survive"),
        ("[Service]\nKillMode=control-group\n", "KillMode=control-group: .* before it has drained"),
        ("[Service]\nKillMode=\n", "KillMode=control-group: .* before it has drained"),
        ("[Service]\nSendSIGKILL=no\n", "SendSIGKILL=no"),
        ("[Service]\nStartLimitIntervalSec=10\n", r"StartLimitIntervalSec= stands under \[Service\]"),
        ("[Service]\nStartLimitBurst=10\n", r"StartLimitBurst= stands under \[Service\]"),
        ("[Unit]\nStartLimitIntervalSec=0\n", "never trips"),
        ("[Unit]\nStartLimitIntervalSec=10min\n", "4 starts that use up their limits take 10820 s"),
        ("[Unit]\nStartLimitBurst=\n", "a slow failure is tried for ever"),
        (
            "[Service]\nTimeoutStartSec=90\n",
            r"TimeoutStartSec=90 is shorter than the start and its proof may take \(2400 s\)",
        ),
        ("[Service]\nTimeoutStartSec=\n", "TimeoutStartSec= is not set"),
        ("[Service]\nTimeoutStopSec=5s\n", r"TimeoutStopSec=5s is shorter than the drain .* \(290 s\)"),
        ("[Service]\nTimeoutStopSec=soon\n", "TimeoutStopSec=soon is no time span"),
        ("[Service]\nTimeoutStopSec=\n", "TimeoutStopSec= is not set"),
        ("[X-Dsv4ctl]\nDrainSec=10min\n", r"TimeoutStopSec=290 is shorter .* \(770 s\)"),
        ("[Service]\nNotifyAccess=all\n", "NotifyAccess=all: the main process"),
        ("[Service]\nNotifyAccess=\n", "NotifyAccess=: the main process"),
        ("[Service]\nNotifyAccess=none\n", "NotifyAccess=none: the main process, our supervisor, would not be heard"),
        ("[Service]\nType=simple\n", "Type= is not notify"),
        ("[Service]\nExecStart=\nExecStart=/bin/sleep 1000\n", "starts /bin/sleep and not our supervisor"),
        ("[Service]\nExecStart=\nExecStart=/bin/x -- dsv4ctl.supervise\n", "starts /bin/x and not our supervisor"),
        ("[Service]\nExecStart=/bin/sleep 1000\n", "ExecStart= stands 2 times"),
        ("[Service]\nExecStart=\n", "ExecStart= stands 0 times"),
        ("[Service]\nExecStart=\nExecStart=/usr/bin/uv run sglang\n", "/usr/bin/uv runs the engine as its child"),
        ("[Service]\nExecStart=\nExecStart=-/usr/bin/nohup python\n", "/usr/bin/nohup runs the engine"),
        ("[Service]\nExecStart=\nExecStart=/usr/bin/env A=1 conda run python\n", "conda runs the engine"),
        ("[Service]\nExecStart=\nExecStart=/bin/sh -c 'python -m x'\n", "/bin/sh -c without exec"),
        (
            "[Service]\nExecStart=\nExecStart=:/p -m dsv4ctl.supervise /i -- /usr/bin/tmux new python\n",
            "/usr/bin/tmux runs",
        ),
        ("[Service]\nExecStart=\nExecStart=/bin/x 'open\n", "quote ' is not closed"),
        ("[Service]\nExecStart=\nExecStart=/bin/x --model /models/%u\n", "systemd expands %u"),
        ("[Service]\nEnvironment=A=/m/%h\n", "systemd expands %h"),
        ("[Service]\nEnvironmentFile=/etc/hidden.env\n", "EnvironmentFile=/etc/hidden.env: without the file"),
    ],
)
def test_what_verify_lets_pass_is_named(drop_in: str, objection: str) -> None:
    """B20, B21: runners, and settings that spare workers, included."""
    assert any(re.search(objection, message) for message in unitfile.lint(UNIT, drop_in)), unitfile.lint(UNIT, drop_in)


@pytest.mark.parametrize(
    "drop_in",
    [
        "[Service]\nTimeoutStopSec=10min\n[Unit]\nStartLimitIntervalSec=5h\n",
        "[Service]\nExecStart=\nExecStart=/bin/sh -c 'exec /p -m dsv4ctl.supervise /i -- /e/python -m x'\n",
        "[Service]\nEnvironment=A=100%%\n",
        "[Service]\nEnvironmentFile=-/etc/hidden.env\n",
    ],
)
def test_what_is_fine_is_not_objected_to(drop_in: str) -> None:
    assert unitfile.lint(UNIT, drop_in) == ()


def test_a_ring_of_units_that_end_each_other_is_named_once() -> None:
    """B51: in such a ring one crash turns the restart of a crashed unit into a stop."""
    units = {
        "dsv4.target": "[Unit]\nRequires=dsv4-a.service dsv4-b.service\n",
        "dsv4-a.service": "[Unit]\nPartOf=dsv4.target\n",
        "dsv4-b.service": "[Unit]\nAfter=dsv4.target\n",
    }
    (message,) = unitfile.cycles(units)
    assert message.startswith("dsv4-a.service -> dsv4.target -> dsv4-a.service: a ring")


def test_a_ring_through_an_install_section_is_found() -> None:
    units = {"t": "[Unit]\n", "a": "[Unit]\nBindsTo=t\n[Install]\nRequiredBy=t\n"}
    assert len(unitfile.cycles(units)) == 1


def test_wants_and_part_of_make_no_ring() -> None:
    units = {"t": "[Unit]\nWants=a\n", "a": "[Unit]\nPartOf=t\n[Install]\nWantedBy=t\n"}
    assert unitfile.cycles(units) == ()


@pytest.mark.parametrize(
    ("drop_in", "usurped"),
    [
        ("[Service]\nExecStart=\nExecStart=/bin/sleep 1000\n", True),
        ("[Service]\nExecStart=/bin/sleep 1000\n", True),
        ("[Service]\nType=exec\n", True),
        ("[Service]\nNotifyAccess=none\n", True),
        ("[Service]\nKillMode=process\n", True),
        ("[Service]\nKillMode=control-group\n", False),
        ("[Service]\nNotifyAccess=all\n", False),
        ("[Service]\nTimeoutStopSec=5\nEnvironment=A=b\n", False),
        ("[Service]\nExecStart=\nExecStart=/usr/bin/numactl -i all /p -m dsv4ctl.supervise /i -- /e/python\n", False),
    ],
)
def test_only_what_takes_the_supervisors_place_or_voice_or_spares_its_engine_is_beyond_repair(
    drop_in: str, *, usurped: bool
) -> None:
    assert bool(unitfile.usurped(UNIT, drop_in)) is usurped
    assert set(unitfile.usurped(UNIT, drop_in)) <= set(unitfile.lint(UNIT, drop_in))
