import json
from pathlib import Path

import pytest

from dsv4ctl import cli, config, resources
from dsv4ctl.problems import Status


def write(root: Path, text: str) -> Path:
    file = root / "etc/dsv4ctl/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    return file


def test_config_show_prints_key_value_and_source_in_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, 'port = 30005\n[memory]\ncontext_length = "512k"\n')
    assert cli.run(["config", "show", "--root", str(tmp_path), "--gpus", "4-7"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == ["port", "30005", f"{file}:1"]
    assert next(line for line in lines if "context_length" in line).split(maxsplit=1)[1] == f"524288 (512k)  {file}:3"
    assert len({line.index(" --gpus") if "--gpus" in line else line.index(" default") for line in lines[3:6]}) == 1


def test_config_show_as_json_holds_the_same_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, '[memory]\ncontext_length = "512k"\n[engine.environment]\nHF_TOKEN = "hunter2"\n')
    assert cli.run(["config", "show", "--root", str(tmp_path), "--json"]) == 0
    out = capsys.readouterr().out
    shown = json.loads(out)
    assert shown["memory.context_length"] == {"value": 524288, "source": f"{file}:2"}
    assert shown["engine.environment.HF_TOKEN"]["value"] == "***"
    assert "hunter2" not in out


def test_warnings_go_to_stderr_so_that_json_stays_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["config", "show", "--root", str(tmp_path), "--json", "--host", "0.0.0.0"]) == 0  # noqa: S104
    captured = capsys.readouterr()
    assert json.loads(captured.out)["host"]["value"] == "0.0.0.0"  # noqa: S104
    assert captured.err.startswith("warning: host 0.0.0.0 without api_key_file: everyone who can reach")


def test_a_bad_config_exits_with_usage_and_one_line_a_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path, "port = 80\nprot = 1\n")
    assert cli.run(["config", "show", "--root", str(tmp_path), "--gpus", "9"]) == Status.USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"{file}:1: port: cannot use 80" in captured.err
    assert "did you mean port?" in captured.err
    assert "--gpus: cannot place mode single-tp4 on GPUs 9" in captured.err
    assert "Traceback" not in captured.err


def test_a_config_that_is_named_must_be_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "missing.toml"
    assert cli.run(["config", "show", "--config", str(missing)]) == Status.USAGE
    assert f"cannot read {missing}: there is no such file" in capsys.readouterr().err


def test_a_config_that_is_a_folder_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "etc/dsv4ctl/config.toml").mkdir(parents=True)
    assert cli.run(["config", "show", "--root", str(tmp_path)]) == Status.HOST
    assert "cannot read" in capsys.readouterr().err


def test_a_config_that_is_a_link_to_nothing_is_not_taken_for_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "").unlink()
    (tmp_path / "etc/dsv4ctl/config.toml").symlink_to("/mnt/not-mounted/config.toml")
    assert cli.run(["config", "show", "--root", str(tmp_path)]) == Status.HOST
    assert "it is a link to /mnt/not-mounted/config.toml, which is not there" in capsys.readouterr().err


def test_a_config_without_an_end_is_not_read_to_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["config", "show", "--config", "/dev/zero"]) == Status.USAGE
    assert "it is no text file of at most 1 MiB" in capsys.readouterr().err


def test_config_example_prints_the_example_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["config", "example"]) == 0
    assert capsys.readouterr().out == resources.template("config.example.toml")


def test_init_writes_a_config_that_can_be_loaded_and_shows_what_it_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["init", "--yes", "--root", str(tmp_path)]) == 0
    file = tmp_path / "etc/dsv4ctl/config.toml"
    config.load(file.read_text(), {}, path=str(file))
    assert file.stat().st_mode & 0o777 == 0o644
    told = capsys.readouterr().err
    assert "engines:" in told
    assert "-> mode single-tp" in told
    assert f"wrote {file}" in told


def test_init_never_overwrites(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, "port = 30005\n")
    assert cli.run(["init", "--yes", "--root", str(tmp_path)]) == Status.HOST
    assert file.read_text() == "port = 30005\n"
    assert "it is not overwritten" in capsys.readouterr().err


def test_init_does_not_write_through_a_dangling_link_either(tmp_path: Path) -> None:
    file = tmp_path / "etc/dsv4ctl/config.toml"
    file.parent.mkdir(parents=True)
    file.symlink_to(tmp_path / "elsewhere")
    assert cli.run(["init", "--yes", "--root", str(tmp_path)]) == Status.HOST
    assert file.is_symlink()
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("option", ["--print", "--dry-run"])
def test_init_prints_the_config_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    assert cli.run(["init", option, "--root", str(tmp_path)]) == 0
    config.load(capsys.readouterr().out, {}, path="printed")
    assert list(tmp_path.iterdir()) == []


def test_init_without_yes_does_not_write_where_nobody_can_be_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["init", "--root", str(tmp_path)]) == Status.HOST
    assert list(tmp_path.iterdir()) == []
    assert f"dsv4ctl init --root {tmp_path} --yes" in capsys.readouterr().err
