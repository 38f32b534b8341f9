"""What `who` shows: every holder, why it is called what it is called, and what would be done. Pure."""

from dsv4ctl import secret
from dsv4ctl.aiming import Clearing
from dsv4ctl.blame import Suspect, Verdict, gpus, words
from dsv4ctl.model import Gpu, PortView, Process

# A command line that is longer is cut for people; --json has it whole.
WIDEST = 160


def text(found: Clearing) -> str:
    """One block a holder, one line a GPU in use; what is free is said so."""
    blocks = [_block(found, suspect) for suspect in found.found.blame.suspects]
    lines = [words.gpu(gpu, found.found.holds) for gpu in _gpus(found) if gpus.busy(gpu)]
    lines += [f"GPU {gpu.index}: idle" for gpu in _gpus(found) if not gpus.busy(gpu)]
    taken = {port for suspect in found.found.blame.suspects for port in suspect.ports}
    lines += [_port(found.view.ports.get(port, PortView(port=port))) for port in sorted(found.wanted.ports - taken)]
    if found.found.gpus.problem:
        lines.append(f"GPUs: {found.found.gpus.problem}")
    return "\n".join((*blocks, *lines)) or "nothing is installed, and this host has no GPU; dsv4ctl who PORT"


def as_json(found: Clearing) -> dict[str, object]:
    """The same as values."""
    return {
        "holders": [
            {**words.values(suspect), "would": would(found, suspect)} for suspect in found.found.blame.suspects
        ],
        "gpus": [
            {"index": gpu.index, "uuid": gpu.uuid, "used_bytes": gpu.used_bytes, "busy": gpus.busy(gpu)}
            for gpu in _gpus(found)
        ],
        "ports": sorted(found.wanted.ports),
        "kept": {str(port): {"by": seen.kept_by, "why": seen.blocked} for port, seen in found.view.ports.items()},
    }


def _port(port: PortView) -> str:
    """A port of which no listener was found."""
    return f"port {port.port}: {port.blocked or 'nobody listens'}"


def would(found: Clearing, suspect: Suspect) -> str:
    """What a teardown would do about a holder."""
    tree = next((t for t in found.found.blame.trees if suspect.process and suspect.process.identity in t.members), None)
    if tree is not None and tree.leaving:
        return "be waited for: it is ending, and nothing more can be done about it"
    if tree is not None:
        return f"be ended with its tree of {len(tree.members)}"
    if suspect.verdict is Verdict.OURS:
        return "be stopped with its unit"
    return f"stay: {words.advice(suspect, _teardown(found, suspect))}"


def _teardown(found: Clearing, suspect: Suspect) -> str:
    """The teardown for what a holder has and nothing else: without a port or a GPU it would stop all of ours."""
    numbers = ",".join(str(gpu.index) for gpu in found.found.gpus.gpus if gpu.uuid in suspect.gpus)
    narrow = f" --port {min(suspect.ports)}" if suspect.ports else f" --gpus {numbers}" if numbers else ""
    return f"dsv4ctl teardown{narrow}"


def _block(found: Clearing, suspect: Suspect) -> str:
    lines = [f"{suspect.verdict}: {words.suspect(suspect)}"]
    lines += [f"    also: {sign}" for sign in suspect.signs[1:]]
    if suspect.process and suspect.process.command:
        lines.append(f"    command: {_cut(_command(suspect.process))}")
    return "\n".join([*lines, f"    it would {would(found, suspect)}"])


def _cut(text: str) -> str:
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"


def _command(process: Process) -> str:
    """Its command line as it may be shown: a key that somebody typed there is not copied anywhere."""
    return " ".join(secret.args_shown(process.command.split()))


def _gpus(found: Clearing) -> list[Gpu]:
    return [gpu for gpu in found.found.gpus.gpus if gpu.uuid in found.wanted.gpus]
