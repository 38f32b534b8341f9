"""render, deploy, rollback: each is one way through observe -> plan -> execute -> prove. Teardown is in clearing."""

from dsv4ctl import basis, foresight, generations, guarded, installed, planning, release, turn
from dsv4ctl.findings import Probing
from dsv4ctl.generations import Kept
from dsv4ctl.host import Host
from dsv4ctl.model import HostSpec, Release
from dsv4ctl.planned import Plan
from dsv4ctl.planning import Terms
from dsv4ctl.problems import Problem
from dsv4ctl.store import Claim
from dsv4ctl.telling import Planned, Tell, Warns


def render(host: Host, spec: HostSpec) -> Release:
    """The release that `spec` gives on this host. Raises what the engine and release rooms raise."""
    machine = basis.machine(host, spec)
    return release.render(foresight.of_deploy(host, spec, machine).spec, machine, basis.texts())


def deploy(host: Host, spec: HostSpec, tell: Tell, terms: Terms | None = None) -> tuple[Plan, Probing]:
    """Make the host match `spec` and prove that what answers is what was asked for.

    A stray engine on a port or GPU that is needed is ended. Refused before anything is touched when somebody else holds
    it, unless the terms name him. Raises Reverted when it failed and the last good release serves again, else the
    Problem of whatever failed.
    """
    terms = terms or Terms()
    host.require_live()
    with turn.taken(host, _claim("deploy", terms), tell) as taken:
        return _made(host, planning.prepare(host, spec, terms), terms, taken.tell)


def rollback(host: Host, number: int | None, tell: Tell, terms: Terms) -> tuple[Plan, Probing]:
    """Deploy a release as it was kept, under a new number. `number` None: the last good one before what is installed.

    Raises Problem when there is no such release, and what a deploy raises.
    """
    host.require_live()
    with turn.taken(host, _claim("rollback", terms), tell) as taken:
        return _made(host, planning.again(host, chosen(host, number), terms), terms, taken.tell)


def chosen(host: Host, number: int | None) -> Kept:
    """The release that a rollback goes to. Raises Problem when there is none."""
    if number is not None:
        return host.store.releases.read(number)
    kept = host.store.releases.all()
    here = installed.release(host, kept)
    found = generations.earlier(kept, here)
    if found is None and here is not None and here.proved:
        raise Problem(
            f"cannot roll back: no release before release {here.number}, which is installed, was ever proved",
            hint=f"dsv4ctl rollback {here.number}   brings up that one again; dsv4ctl history   lists all",
        )
    if found is None:
        raise Problem("cannot roll back: no earlier release was ever proved", hint="dsv4ctl history")
    return found


def _made(host: Host, made: Plan, terms: Terms, tell: Tell) -> tuple[Plan, Probing]:
    """Refuse the plan, or carry it out and prove it."""
    tell(Planned(made))
    for warning in made.warnings:
        tell(Warns(warning))
    planning.refuse(made.against())
    for build in made.builds:
        if why := host.store.engines.cache(basis.engine_key(build), build):
            tell(Warns(f"{why}; the engine is asked for its options again the next time"))
    return made, guarded.attempt(host, made, terms, tell)


def _claim(what: str, terms: Terms) -> Claim:
    return Claim(what=what, reason=terms.reason, wait_s=terms.wait_s)
