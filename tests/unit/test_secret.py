"""What looks like a secret in a unit file is not shown; everything else is."""

from dataclasses import replace

from dsv4ctl import secret
from dsv4ctl.config import texts
from tests import releases as rendered

SECRETS = (
    ("HF_TOKEN", "hf_abc"),
    ("PASSWORD", 'with "quotes" and $'),
    ("HTTPS_PROXY", "http://me:mine@proxy:3128"),
    ("KEEP", "shown"),
)
SPEC = rendered.spec(
    engine=replace(
        rendered.ENGINE,
        environment=SECRETS,
        args=("--json-model-override-args", '{"a": 1}', "--sleep-on-idle"),
    )
)


def test_a_unit_is_shown_without_the_values_of_variables_named_like_secrets() -> None:
    unit = rendered.unit(rendered.render(SPEC))

    shown = secret.unit_shown(unit)

    assert all(hidden in unit for hidden in ("hf_abc", "me:mine", "quotes"))
    assert not any(hidden in shown for hidden in ("hf_abc", "me:mine", "quotes"))
    assert "Environment=HF_TOKEN=***\n" in shown
    assert 'Environment="PASSWORD=***"\n' in shown
    assert "http://***@proxy:3128" in shown
    assert "KEEP=shown" in shown
    assert len(shown.splitlines()) == len(unit.splitlines())


def test_a_unit_without_secrets_is_shown_as_it_is() -> None:
    unit = rendered.unit(rendered.render(rendered.spec()))

    assert secret.unit_shown(unit) == unit


def test_a_command_is_shown_without_what_follows_an_option_named_like_a_secret() -> None:
    line = 'ExecStart=/bin/x --tp-size 4 --hf-token abc --password "a \\" b" --api-key=xyz --port 1'

    assert (
        secret.unit_shown(line) == "ExecStart=/bin/x --tp-size 4 --hf-token *** --password *** --api-key=*** --port 1"
    )


def test_a_config_as_texts_tells_everything_but_secrets() -> None:
    shown = texts(SPEC)

    assert shown["mode"] == "single-tp4 (server tp 4 on GPUs 0-3)"
    assert shown["memory.context_length"] == "-"
    assert shown["engine.environment.HF_TOKEN"] == secret.HIDDEN
    assert "hf_abc" not in str(shown)
