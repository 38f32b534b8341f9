"""`dsv4ctl adopt`."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from dsv4ctl.cli.options import below, elsewhere, reason_option, root_option, wait_option
from dsv4ctl.cli.reply import Reply, json_option
from dsv4ctl.problems import Problem

if TYPE_CHECKING:
    from dsv4ctl.adoption import Adoption, Moved
    from dsv4ctl.host import Host


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the options ask for."""

    out: Path | None
    api_key_file: str
    to_scope: bool
    reason: str
    wait_s: float
    yes: bool
    dry_run: bool


@click.command("adopt", short_help="Take over engines that were started by hand.")
@click.argument("numbers", nargs=-1, type=click.IntRange(1), metavar="[PORT|PID]...")
@root_option
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write the config there.")
@click.option(
    "--api-key-file", metavar="FILE", default="", help="Put an API key of a command line into this file, mode 0600."
)
@click.option(
    "--scope",
    "--move",
    "--into-slice",
    "to_scope",
    is_flag=True,
    help="Move the living processes into a scope below dsv4.slice; none is restarted.",
)
@reason_option
@wait_option
@click.option("--yes", is_flag=True, help="Do it without asking.")
@click.option("--dry-run", "--print", is_flag=True, help="Show it and touch nothing.")
@json_option("Print the same as JSON; nothing is done without --yes.")
def command(numbers: tuple[int, ...], root: Path, reply: Reply, **asked: object) -> int:
    """Find engines that somebody started by hand, write the config that would start the same, and show what differs.

    All of them, or those with these ports or pids. A config that is there is never overwritten. With --scope they go on
    as they are, below dsv4.slice, until a deploy replaces them or a teardown ends them.
    """
    from dsv4ctl import adoption
    from dsv4ctl.host import Host

    host, wish = Host.real(root), Wish(**cast("dict[str, Any]", asked))
    path = wish.out or host.paths.config
    _require_absolute(wish.api_key_file)
    found = adoption.look(host, numbers, wish.api_key_file)
    _show(found, reply)
    if wish.dry_run or (reply.wanted and not wish.yes):
        return _draft(found, reply)
    write = _is_to_be_written(path, found, to_scope=wish.to_scope, root=root)
    if not wish.yes:
        _ask(path, write=write, to_scope=wish.to_scope, root=root)
    if write:
        _write(host, path, found, with_key=bool(wish.api_key_file))
        reply.add({"written": str(path)})
    moved = _move(host, found, wish, reply) if wish.to_scope else ()
    return _moved(moved, reply) if write or moved else _draft(found, reply)


def _require_absolute(key_file: str) -> None:
    if key_file and not key_file.startswith("/"):
        raise click.BadParameter(f"'{key_file}' is no absolute path", param_hint="--api-key-file")


def _show(found: "Adoption", reply: Reply) -> None:
    from dsv4ctl import screen_adopt

    reply.add({**screen_adopt.as_json(found), "written": "", "moved": ()})
    if not reply.wanted:
        click.echo("\n".join(screen_adopt.lines(found)), err=True)


def _draft(found: "Adoption", reply: Reply) -> int:
    if not reply.wanted:
        click.echo(found.draft.text, nl=False)
    return 0


def _moved(moved: "tuple[Moved, ...]", reply: Reply) -> int:
    from dsv4ctl import screen_adopt

    reply.add({"moved": [{"scope": one.scope, "pids": one.pids} for one in moved]})
    if not reply.wanted:
        for one in moved:
            click.echo(screen_adopt.moved(one))
    return 0


def _is_to_be_written(path: Path, found: "Adoption", *, to_scope: bool, root: Path) -> bool:
    """Whether the config is written; one that is there stops nobody who wants the processes moved."""
    if not (path.exists() or path.is_symlink()):
        return True
    same = path.is_file() and path.read_text(errors="replace") == found.draft.text
    if not to_scope and not same:
        hint = f"dsv4ctl adopt{below(root)} --dry-run   shows what would be written, --out FILE   writes it elsewhere"
        raise Problem(f"cannot write {path}: there is one already, and it is not overwritten", hint=hint)
    if not same:
        click.echo(f"note: {path} is there already and stays as it is", err=True)
    return False


def _ask(path: Path, *, write: bool, to_scope: bool, root: Path) -> None:
    does = " and ".join([*([f"write {path}"] if write else []), *(["move the processes"] if to_scope else [])])
    if not does:
        return
    if not sys.stdin.isatty():
        hint = f"dsv4ctl adopt{below(root)} --yes, or --dry-run"
        raise Problem(f"cannot ask whether to {does}: standard input is no terminal", hint=hint)
    click.confirm(f"{does}?", default=True, abort=True, err=True)


def _write(host: "Host", path: Path, found: "Adoption", *, with_key: bool) -> None:
    from dsv4ctl import adoption, store

    if found.draft.api_key and with_key:
        adoption.write_key(host, found.draft)
        click.echo(f"wrote {found.draft.key_file} with the API key, readable for root alone", err=True)
    store.write_atomic(path, found.draft.text, mode=0o644)
    at = below(host.root) + elsewhere(path, host.paths.config)
    click.echo(f"wrote {path}; look at it with `dsv4ctl config show{at}`, then `dsv4ctl plan{at}`", err=True)
    if found.draft.api_key and not with_key:
        file = found.draft.key_file
        click.echo(
            f"the config names {file}, which is to hold the API key: `install -m 600 /dev/stdin {file}`, and type it; "
            f"or `dsv4ctl adopt{below(host.root)} --api-key-file {file}`",
            err=True,
        )


def _move(host: "Host", found: "Adoption", wish: Wish, reply: Reply) -> "tuple[Moved, ...]":
    from dsv4ctl import adoption
    from dsv4ctl.cli import live
    from dsv4ctl.store import Claim

    claim = Claim(what="adopt", reason=wish.reason, wait_s=wish.wait_s)
    with live.teller(reply) as tell:
        return adoption.move(host, found.mains, tell, claim=claim)
