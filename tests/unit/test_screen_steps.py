"""What people read of steps, and of how they change unit files."""

from dsv4ctl import screen_steps
from dsv4ctl.steps import RemoveFile, Stop, WriteFile


def test_a_plan_says_what_and_why_and_shows_how_files_change() -> None:
    todo = (
        WriteFile(path="/a", text="new\n", before="old\n", reason="its text changed"),
        RemoveFile(path="/b", before="gone\n", reason="--purge"),
        Stop(unit="dsv4-server.service", reason="the configuration changed"),
    )

    assert screen_steps.steps(todo).splitlines()[2] == "  3. stop dsv4-server.service: the configuration changed"
    changed = "--- /a\n+++ /a\n@@ -1 +1 @@\n-old\n+new\n"
    assert screen_steps.diffs(todo, full=True) == f"{changed}--- /b\n+++ /dev/null\n@@ -1 +0,0 @@\n-gone\n"
    assert screen_steps.diffs(todo, full=False) == f"{changed}- /b: removed, 1 line; --full shows the text\n"


def test_a_new_file_is_a_line_unless_its_text_is_asked_for() -> None:
    todo = (WriteFile(path="/a", text="one\ntwo\n", before=None, reason="it is not there"),)

    assert screen_steps.diffs(todo, full=False) == "+ /a: new, 2 lines; --full shows the text\n"
    assert screen_steps.diffs(todo, full=True).endswith("+one\n+two\n")
