"""What processes may have, against what their unit asks for: this very process lives with limits, too."""

import os
import resource

from dsv4ctl import rlimits, unitfile
from dsv4ctl.rlimits import Short

CAPPED = Short(setting="LimitMEMLOCK", asked="infinity", has="8388608", pids=(7,), inherited=True)
LOWERED = Short(setting="LimitNOFILE", asked="1048576", has="512", pids=(7, 8), inherited=False)


def test_a_limit_that_is_lower_than_asked_for_is_told_with_what_there_is() -> None:
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    more, enough = (unitfile.parse([f"[Service]\nLimitNOFILE={count}\n"]) for count in (files + 1, files))

    (one,) = rlimits.short(more, [os.getpid()])

    assert (one.words, one.pids) == (f"LimitNOFILE={files + 1} (has {files})", (os.getpid(),))
    assert rlimits.short(enough, [os.getpid()]) == ()


def test_what_systemd_itself_may_not_raise_is_one_line_for_all_units() -> None:
    found = {"dsv4-prefill.service": (CAPPED,), "dsv4-decode.service": (CAPPED, LOWERED), "dsv4-router.service": ()}

    assert list(rlimits.inherited(found)) == [
        "systemd may not raise LimitMEMLOCK=infinity (has 8388608) of dsv4-prefill.service, dsv4-decode.service: as in "
        "a container without CAP_SYS_RESOURCE"
    ]


def test_what_somebody_lowered_is_told_of_its_processes() -> None:
    (line,) = rlimits.lowered("dsv4-decode.service", (CAPPED, LOWERED))

    assert line.startswith(
        "pid 7 and 1 more of dsv4-decode.service live with max open files 512, and the unit asks for"
    )
