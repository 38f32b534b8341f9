"""A unit of ours of which nothing is written down any more: what systemd, its own command and its engine still tell."""

from dsv4ctl import asking, probe, procs, standing
from dsv4ctl.engine import readback
from dsv4ctl.findings import Row
from dsv4ctl.model import ActiveState, Unit
from dsv4ctl.names import instance_of


def row(unit: Unit, anew: str) -> Row:
    """Its row in the table; `anew` is what to type to have it written down again.

    The supervisor keeps its command line, and the engine's stands at its end.
    """
    argv = procs.arguments(unit.main_pid) if unit.main_pid else ()
    launch = readback.launch(argv[argv.index("--") + 1 :]) if "--" in argv else None
    stands = standing.of(unit, None)
    host, port = (launch.get("--host") or "127.0.0.1", int(launch.get("--port") or 0)) if launch else ("", 0)
    asks = unit.active is ActiveState.ACTIVE and port
    ready = probe.get(f"{probe.base_url(host, port)}/ready", timeout_s=asking.TIMEOUT_S) if asks else None
    return Row(
        unit=unit.name,
        role=instance_of(unit.name),
        state=stands.state,
        since=unit.since,
        pid=unit.main_pid,
        port=port,
        health=asking.said(ready) if ready else "-",
        serves=ready is not None and ready.status == 200,
        well=False,
        model=(launch.get("--served-model-name") or "-") if launch else "-",
        context_length=None,
        kv_tokens=None,
        running=None,
        waiting=None,
        gpus=(),
        gpu_used_bytes=None,
        restarts=unit.restarts,
        words=f"what it is for is written down nowhere any more (try: {anew}   writes it anew)",
    )
