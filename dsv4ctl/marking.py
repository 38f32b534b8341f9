"""After a deploy: what the engines say of their memory is held against the plan, and kept for the next one."""

from collections.abc import Iterable
from contextlib import suppress

from dsv4ctl import installed, measurements, probe, proof
from dsv4ctl.foresight import key_of
from dsv4ctl.host import Host
from dsv4ctl.memory import learnt, marks
from dsv4ctl.memory.forecast import Forecast
from dsv4ctl.memory.marks import Mark
from dsv4ctl.model import Capacity, Instance
from dsv4ctl.problems import NotReady, Problem
from dsv4ctl.quantity import count_text

# /server_info asks every rank; those of a busy engine answer between two steps.
ASK_TIMEOUT_S = 5.0


def after(host: Host, instances: Iterable[Instance], forecast: Forecast) -> tuple[Mark, ...]:
    """Compare each instance that is up with its plan, keep what is new, and return the marks.

    Raises NotReady for an engine that is up and cannot hold one request of the context that was asked for.
    """
    found = []
    for instance in instances:
        if (capacity := _capacity(host, instance)) is None:
            continue
        if mark := _mark(host, instance, capacity, forecast):
            found.append(mark)
        _refuse_too_small(instance, capacity)
    return tuple(found)


def _capacity(host: Host, instance: Instance) -> Capacity | None:
    state = installed.run_state(host, instance.name)
    return state.capacity if state is not None and state.digest == instance.digest else None


def _mark(host: Host, instance: Instance, capacity: Capacity, forecast: Forecast) -> Mark | None:
    foreseen = forecast.of(instance.role)
    if foreseen is None:
        return None
    if known := measurements.of_digest(host.paths, instance.digest):
        return known
    url = f"{probe.base_url(instance.host, instance.port)}/server_info"
    said = probe.get(url, proof.api_key(instance), timeout_s=ASK_TIMEOUT_S).json()
    reported = marks.reported(capacity, said)
    if not reported.tokens:
        return None
    mark = Mark(
        key=key_of(forecast.spec, foreseen),
        digest=instance.digest,
        fraction=foreseen.budget.ask.fraction,
        planned=learnt.planned(foreseen.budget),
        reported=reported,
        at=host.clock.wall(),
        auto=foreseen.auto,
        occupied_bytes=foreseen.budget.ask.occupied_bytes,
    )
    # What cannot be kept is measured again at the next start; it is no reason to end an engine that serves.
    with suppress(Problem):
        measurements.keep(host.paths, mark)
    return mark


def _refuse_too_small(instance: Instance, capacity: Capacity) -> None:
    asked, has = instance.context_length, capacity.max_total_tokens
    if asked is None or not has or has >= asked:
        return
    raise NotReady(
        f"cannot serve a context of {count_text(asked)}: {instance.unit} is up, but its KV pool holds {has} tokens, "
        "fewer than one such request",
        hint=f"dsv4ctl memory --context-length {asked}   tells what would hold it",
    )
