"""What `who` shows of a holder."""

import json

from dsv4ctl import screen_who
from dsv4ctl.blame import Blame, Suspect, Verdict
from dsv4ctl.clearing import Clearing
from dsv4ctl.free import Found
from dsv4ctl.inquiry import Wanted
from dsv4ctl.model import HostView
from tests.unit.blame.forests import process


def test_a_key_on_a_command_line_is_shown_to_nobody() -> None:
    command = "python -m sglang.launch_server --api-key sk-1 --admin-api-key=sk-2 --port 30000"
    holder = process(1000, 200, command=command)
    suspect = Suspect(verdict=Verdict.STRAY, process=holder, holds=("listens on 127.0.0.1:30000",), signs=())
    found = Found(blame=Blame(suspects=(suspect,)))
    who = Clearing(instances=(), view=HostView(), wanted=Wanted(), found=found, steps=())

    for said in (screen_who.text(who), json.dumps(screen_who.as_json(who))):
        assert "sk-" not in said
        assert "--port 30000" in said
