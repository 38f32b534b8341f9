"""`python -m dsv4ctl.supervise INSTANCE.json -- ENGINE ARGV…`: the main process of an engine's unit."""

import gc
import os
import sys
from pathlib import Path

# http.client loads OpenSSL for the https that is never spoken here: 7 MB in a process that lives as long as the model.
sys.modules.setdefault("ssl", None)  # type: ignore[arg-type]

from dsv4ctl import record, store  # noqa: E402 -- after the line above
from dsv4ctl.clock import RealClock  # noqa: E402
from dsv4ctl.model import Instance, SuperviseExit  # noqa: E402
from dsv4ctl.problems import Problem  # noqa: E402
from dsv4ctl.supervise.inbox import signals  # noqa: E402
from dsv4ctl.supervise.journal import Journal  # noqa: E402
from dsv4ctl.supervise.loop import supervise  # noqa: E402

# The unit's PATH is the engine's, and the operator's to set; our own tools lie where the system has them.
SYSTEM_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
USAGE = "usage: python -m dsv4ctl.supervise INSTANCE.json -- ENGINE ARGUMENT..."


def instance_of(words: list[str]) -> Instance:
    """The instance in the file that a command names, with the argv that the command gives. Raises Problem."""
    match words:
        case [file, "--", _, *_]:
            return record.load_instance(store.read(Path(file)), tuple(words[2:]))
        case _:
            raise Problem(USAGE, hint="systemctl cat shows how a unit does it")


def main() -> int:
    """Supervise one engine until it is over. Returns the exit status."""
    try:
        instance = instance_of(sys.argv[1:])
    except Problem as problem:
        Journal().note(f"{problem}{f' ({problem.hint})' if problem.hint else ''}")
        return SuperviseExit.USAGE
    environment = dict(os.environ)
    os.environ["PATH"] = ":".join(filter(None, (environment.get("PATH"), *SYSTEM_PATH)))
    with signals() as caught:
        return supervise(instance, environment, RealClock(), caught)


if __name__ == "__main__":
    status = main()
    # At its end Python looks for cycles in all that was imported, while systemd waits for us and others for the unit.
    gc.freeze()
    sys.exit(status)
