"""What the options say in hints."""

from pathlib import Path

from dsv4ctl.cli.options import elsewhere


def test_a_hint_names_the_config_where_no_command_would_look_for_it() -> None:
    usual = Path("/etc/dsv4ctl/config.toml")

    assert elsewhere(usual, usual) == ""
    assert elsewhere(Path("/home/op/my config.toml"), usual) == " --config '/home/op/my config.toml'"
