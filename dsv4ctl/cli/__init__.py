"""The command line: read options, one lifecycle call, show. Commands are imported only when they are asked for."""

import gc
import sys
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module

import click
from typing_extensions import override

from dsv4ctl import __version__
from dsv4ctl.cli import signals, streams
from dsv4ctl.cli.reply import Reply, asked_in
from dsv4ctl.problems import Bug, Interrupted, Problem, Status, WrongUsage

# Name -> short help, written here so that `dsv4ctl --help` imports no command; a test compares it with the commands.
COMMANDS = {
    "deploy": "Make this host serve what is asked for, and prove it.",
    "plan": "Show what deploy would do; touch nothing.",
    "status": "Show what runs here and how it is.",
    "probe": "Prove what is deployed now, with one new generation through all of it.",
    "history": "Show the releases that are kept and what came of them.",
    "diff": "Show how two releases differ: config and units.",
    "rollback": "Deploy an earlier release as it was kept.",
    "logs": "Show what instances wrote.",
    "teardown": "Stop everything of ours and prove that nothing is left.",
    "pause": "For a time restart nothing and end nothing for its health.",
    "resume": "End a pause, let the brake go, and start what they kept down.",
    "memory": "Plan GPU memory: what fits, what to set, what a longer context costs.",
    "who": "Show who holds a port or a GPU, and what teardown would do.",
    "render": "Print or write the unit files of a config.",
    "topology": "Show NUMA nodes and GPUs, and where a mode's roles would be placed.",
    "config": "Show the effective config, or an example.",
    "init": "Write a config for this host from what is found on it.",
    "adopt": "Take over engines that were started by hand.",
    "rehearse": "Try the whole job in a private systemd with stand-in GPUs.",
}

# What people type who come from other tools.
MEANT = {
    **dict.fromkeys(("stop", "down", "undeploy", "kill", "remove", "rm", "destroy", "uninstall"), "teardown"),
    **dict.fromkeys(("start", "up", "run", "serve", "restart", "apply", "install"), "deploy"),
    **dict.fromkeys(("ps", "list", "ls", "show", "health"), "status"),
    **dict.fromkeys(("dry-run", "check"), "plan"),
    **dict.fromkeys(("prove", "verify", "ping"), "probe"),
    **dict.fromkeys(("releases", "generations", "audit", "versions"), "history"),
    **dict.fromkeys(("undo", "revert", "back"), "rollback"),
    **dict.fromkeys(("log", "journal", "tail"), "logs"),
    **dict.fromkeys(("maintenance", "freeze", "hold"), "pause"),
    **dict.fromkeys(("unpause", "continue", "unpark", "thaw"), "resume"),
    **dict.fromkeys(("import", "takeover", "attach"), "adopt"),
    **dict.fromkeys(("try", "demo", "test"), "rehearse"),
    "help": "--help",
}


class _Commands(click.Group):
    """Finds command NAME as `command` in dsv4ctl.cli.NAME."""

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = import_module(f"dsv4ctl.cli.{cmd_name}").command
        assert isinstance(command, click.Command)  # noqa: S101 - a module without its command is a bug of ours
        return command

    @override
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    @override
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        meant = MEANT.get(args[0]) or next(iter(get_close_matches(args[0], COMMANDS, n=1)), "")
        if args[0] not in COMMANDS and meant:
            ctx.fail(f"no such command '{args[0]}'; did you mean '{meant}'?")
        return super().resolve_command(ctx, args)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="dsv4ctl")
def root() -> None:
    """Deploy, watch over and tear down DeepSeek-V4 inference (SGLang) under systemd on one host.

    After `deploy` exits 0, what answers is what was asked for. After `teardown --verify` exits 0, nothing is left.
    """


def main() -> None:
    """Entry point of the console script: every Problem becomes one message and its exit status."""
    command = sys.argv[1] if len(sys.argv) > 1 else ""
    out = streams.install(changing=command in signals.CHANGING)
    signals.heed(command)
    status = run(sys.argv[1:])
    if out.lost is not None:
        say(out.lost)
        status = status or out.lost.status
    # At its end Python looks for cycles in all that was imported: for 80 ms after a deploy, and to free it for nobody.
    gc.freeze()
    sys.exit(status)


def run(argv: list[str], commands: click.Group = root) -> int:
    """Run one command line; returns its exit status."""
    reply = Reply(asked=asked_in(argv))
    status, problem = _carried_out(argv, commands, reply)
    try:
        # Whoever read us (head, less) may have seen enough, which makes nothing well that is not.
        with suppress(BrokenPipeError):
            if problem is not None:
                reply.close(problem)
    except Problem as unsaid:
        say(unsaid)
    return status


def _carried_out(argv: list[str], commands: click.Group, reply: Reply) -> tuple[int, Problem | None]:
    """The exit status of a command line, and what it could not do, said for people."""
    try:
        returned = commands.main(args=argv, prog_name="dsv4ctl", standalone_mode=False, obj=reply)
        return returned if isinstance(returned, int) else Status.OK, None
    except click.ClickException as wrong:
        wrong.show()
        problem: Problem = WrongUsage(wrong.format_message(), hint=_help_of(wrong))
    except Problem as known:
        say(problem := known)
    except (KeyboardInterrupt, click.Abort):
        goes_on = "; `dsv4ctl status` shows where it stands, the next deploy or teardown goes on from there"
        problem = Interrupted("interrupted" + (goes_on if argv and argv[0] in signals.CHANGING else ""))
        click.echo(problem, err=True)
    except Exception:
        problem = _bug()
        click.echo(f"dsv4ctl: {problem}\n  {problem.hint}", err=True)
    return problem.status, problem


def say(problem: Problem) -> None:
    """Show a problem on stderr: what cannot be done, then what to type."""
    click.echo(f"{click.style('dsv4ctl:', fg='red')} {problem}", err=True)
    if problem.hint:
        click.echo(f"  try: {problem.hint}", err=True)


def _help_of(wrong: click.ClickException) -> str:
    context = wrong.ctx if isinstance(wrong, click.UsageError) else None
    return f"{context.command_path if context else 'dsv4ctl'} --help"


def _bug() -> Bug:
    import tempfile
    import traceback

    with tempfile.NamedTemporaryFile("w", prefix="dsv4ctl-bug-", suffix=".txt", delete=False) as file:
        file.write(traceback.format_exc())
    last = traceback.format_exc().strip().splitlines()[-1]
    hint = f"please report it with {file.name}"
    return Bug(f"this is a fault of dsv4ctl itself: {last}", hint=hint, details={"report": file.name})
