import pytest

from dsv4ctl import config
from dsv4ctl.config import Row


def row(key: str, text: str | None = None, **flags: object) -> Row:
    rows = config.rows(config.load(text, flags, path="config.toml"))
    return next(row for row in rows if row.key == key)


def test_a_context_length_is_shown_as_a_number_with_its_short_form_behind() -> None:
    assert row("memory.context_length", '[memory]\ncontext_length = "512k"') == Row(
        "memory.context_length", 524288, "524288 (512k)", "config.toml:2"
    )


def test_gpus_are_a_list_for_programs_and_a_range_for_people() -> None:
    assert row("gpus", None) == Row("gpus", [0, 1, 2, 3], "0-3", "default (mode)")
    assert row("gpus", None, gpus="none") == Row("gpus", [], "none", "--gpus")


def test_what_is_not_set_is_null_for_programs_and_a_dash_for_people() -> None:
    assert row("engine.model", None) == Row("engine.model", None, "-", "default")


def test_a_fraction_that_is_not_set_is_shown_as_auto() -> None:
    assert row("memory.mem_fraction_static") == Row("memory.mem_fraction_static", "auto", "auto", "default")


def test_limits_are_seconds_with_the_duration_behind() -> None:
    assert row("limits.start", None) == Row("limits.start", 2400, "2400 (40m)", "default")
    assert row("limits.starts", None).text == "6"


def test_a_mode_of_the_operator_is_shown_role_by_role() -> None:
    text = "[modes.mine]\nserver = { tp = 4, gpus = [4, 5, 6, 7] }"
    assert row("modes.mine.server.tp", text) == Row("modes.mine.server.tp", 4, "4", "config.toml:2")
    assert row("modes.mine.server.gpus", text) == Row("modes.mine.server.gpus", [4, 5, 6, 7], "4-7", "config.toml:2")


def test_of_a_built_in_mode_it_is_shown_what_the_file_changes_and_what_stays() -> None:
    text = "[modes.pd]\nprefill.tp = 1\nprefill.gpus = []\n[modes.dual-tp4]\n"
    shown = [row for row in config.rows(config.load(text, {}, path="config.toml")) if row.key.startswith("modes.")]
    assert [(row.key, row.value, row.text, row.source) for row in shown] == [
        ("modes.pd.prefill.tp", 1, "1", "config.toml:2"),
        ("modes.pd.prefill.gpus", [], "none", "config.toml:3"),
        ("modes.pd.decode.tp", 4, "4", "default"),
        ("modes.pd.decode.gpus", [4, 5, 6, 7], "4-7", "default"),
        ("modes.dual-tp4.server.tp", 4, "4", "default"),
        ("modes.dual-tp4.server.gpus", [0, 1, 2, 3, 4, 5, 6, 7], "0-7", "default"),
    ]


def test_of_gpus_that_are_given_for_every_mode_it_is_told_that_a_modes_own_do_not_count() -> None:
    text = "gpus = []\n[modes.pd]\nprefill.tp = 1\n[modes.mine.server]\ntp = 1\ngpus = [3]"
    assert row("modes.pd.prefill.tp", text).source == "config.toml:3"
    assert row("modes.pd.prefill.gpus", text).source == "default; gpus takes its place"
    assert row("modes.mine.server.gpus", text).source == "config.toml:6; gpus takes its place"


def test_arguments_are_shown_so_that_spaces_and_line_ends_can_be_seen() -> None:
    shown = row("engine.args", '[engine]\nargs = ["--xx", "b c", "d\\ne", ""]')
    assert shown.text == "--xx 'b c' 'd\\ne' ''"
    assert shown.value == ["--xx", "b c", "d\ne", ""]


@pytest.mark.parametrize(
    ("args", "shown"),
    [
        (["--admin-api-key", "hunter2", "--x", "1"], ["--admin-api-key", "***", "--x", "1"]),
        (["--admin-api-key=hunter2", "--x"], ["--admin-api-key=***", "--x"]),
        (["--ssl_keyfile_password", "hunter2"], ["--ssl_keyfile_password", "***"]),
        (["--url", "http://me:hunter2@proxy:1"], ["--url", "http://***@proxy:1"]),
        (["--url=http://me:hunter2@proxy:1"], ["--url=http://***@proxy:1"]),
        (["--page-size", "256"], ["--page-size", "256"]),
        (["--speculative-token-map", "/m/map"], ["--speculative-token-map", "/m/map"]),
        (["--ssl-ca-certs", "/k"], ["--ssl-ca-certs", "/k"]),
        (["--schedule-conservativeness", "1.0"], ["--schedule-conservativeness", "1.0"]),
    ],
)
def test_what_follows_an_option_named_like_a_secret_is_hidden(args: list[str], shown: list[str]) -> None:
    assert row("engine.args", f"[engine]\nargs = {args}").value == shown


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("HF_TOKEN", "hunter2", "***"),
        ("OPENAI_API_KEY", "hunter2", "***"),
        ("AWS_SECRET_ACCESS_KEY", "hunter2", "***"),
        ("MY_PASSWORD", "hunter2", "***"),
        ("https_proxy", "http://me:hunter2@proxy:1", "http://***@proxy:1"),
        ("TOKENIZERS_PARALLELISM", "false", "false"),
        ("SGLANG_MAX_TOKENS", "5", "5"),
    ],
)
def test_a_variable_named_like_a_secret_is_hidden(name: str, value: str, shown: str) -> None:
    found = row(f"engine.environment.{name}", f"[engine.environment]\n{name} = '{value}'")
    assert (found.value, found.text) == (shown, shown)


def warnings(text: str) -> tuple[str, ...]:
    return config.warnings(config.load(text, {}, path="config.toml").spec)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1"])
def test_a_loopback_host_gives_no_warning(host: str) -> None:
    assert warnings(f'host = "{host}"') == ()


@pytest.mark.parametrize(
    ("host", "who"),
    [
        ("0.0.0.0", "everyone who can reach any interface of this host on port 30001"),  # noqa: S104 -- nothing binds
        ("::", "everyone who can reach any interface of this host on port 30001"),
        ("10.0.0.5", "everyone who can reach 10.0.0.5 on port 30001"),
        ("2001:db8::1", "everyone who can reach 2001:db8::1 on port 30001"),
    ],
)
def test_another_host_without_an_api_key_gives_a_warning_that_says_who_can_reach_it(host: str, who: str) -> None:
    (warning,) = warnings(f'host = "{host}"')
    assert who in warning
    assert "give api_key_file" in warning


def test_another_host_with_an_api_key_gives_no_warning() -> None:
    assert warnings('host = "0.0.0.0"\napi_key_file = "/etc/dsv4ctl/api-key"') == ()


def test_secrets_that_will_stand_in_the_unit_give_a_warning_each_and_are_not_repeated() -> None:
    text = '[engine]\nargs = ["--admin-api-key", "hunter2"]\nenvironment = { HF_TOKEN = "hunter2", A = "b" }'
    told = warnings(text)
    assert len(told) == 2
    assert "engine.environment.HF_TOKEN looks like a secret" in told[0]
    assert "every user of this host can read it" in told[1]
    assert "hunter2" not in "".join(told)
