"""What an engine may miss: named one by one, and only what is really missing."""

import os
from pathlib import Path

import pytest

from dsv4ctl import needs


def tool(folder: Path, name: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("#!/bin/sh\n")
    (folder / name).chmod(0o755)


def test_each_tool_that_is_not_on_the_path_is_named_with_where_it_comes_from(tmp_path: Path) -> None:
    tool(tmp_path / "bin", "ninja")
    path = {"PATH": f"/nowhere:{tmp_path}/bin"}

    (nvcc,) = needs.missing_tools(path)

    assert nvcc.startswith("nvcc is not on the engine's PATH")
    assert "CUDA_HOME" in nvcc
    tool(tmp_path / "cuda", "nvcc")
    assert needs.missing_tools({"PATH": f"{path['PATH']}:{tmp_path}/cuda"}) == ()
    assert len(needs.missing_tools({})) == 2


def test_a_file_that_cannot_be_executed_is_no_tool(tmp_path: Path) -> None:
    tool(tmp_path, "ninja")
    tool(tmp_path, "nvcc")
    (tmp_path / "nvcc").chmod(0o644)

    assert [words.split()[0] for words in needs.missing_tools({"PATH": str(tmp_path)})] == ["nvcc"]


def test_a_folder_that_can_be_made_is_not_missed_and_one_that_is_not_named_at_all_is(tmp_path: Path) -> None:
    assert needs.closed_folders({"HOME": str(tmp_path), "SGLANG_CACHE_DIR": str(tmp_path / "not/yet")}) == ()
    assert [words.split("=")[0] for words in needs.closed_folders({})] == ["HOME", "SGLANG_CACHE_DIR"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_folder_of_another_user_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    reading, writing = os.pipe()
    if not (pid := os.fork()):
        os.setuid(65534)
        os.write(writing, str(needs.closed_folders({"HOME": str(tmp_path), "SGLANG_CACHE_DIR": "/tmp"})).encode())  # noqa: S108
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(writing)

    with os.fdopen(reading) as said:
        assert said.read().startswith(f"('HOME={tmp_path} cannot be written by user id 65534")
