"""The options that commands share: those that override the config, where it is, and the root. Decides nothing."""

import functools
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dsv4ctl.cli.seconds import FOREVER, Seconds
from dsv4ctl.generations import KEPT
from dsv4ctl.problems import Problem, WrongOption

if TYPE_CHECKING:
    from dsv4ctl.config import Effective
    from dsv4ctl.host import Host
    from dsv4ctl.model import HostSpec
    from dsv4ctl.savedplan import SavedPlan

Function = Callable[..., object]
# No host has a four-digit number of GPUs.
GPU_DIGITS = 3

# Key of the config -> metavar and help of its option. All are texts here: the config room checks them, all at once.
TEXTS = {
    "mode": (
        "NAME",
        "What to serve: single-tp4 or single-tp8 (one server), pd (prefill and decode behind a router), dual-tp4 (two "
        "servers behind a router), or a mode of the config.",
    ),
    "gpus": ("LIST", 'On which GPUs: "4-7", "0,2,4,6" or "none".'),
    "host": ("ADDRESS", "IP address to listen on."),
    "port": ("PORT", "Port to listen on."),
    "internal_port": ("PORT", "First of the ports that the engines use among themselves."),
    "user": ("USER", "User to run the engine as."),
    "api_key_file": ("FILE", "File with the API key that clients must send."),
    "engine.python": ("FILE", "Python interpreter of the engine's environment."),
    "engine.venv": ("FOLDER", "Virtual environment of the engine, instead of --python."),
    "engine.model": ("FOLDER", "Folder of the checkpoint."),
    "engine.served_model_name": ("NAME", "Name that clients ask for."),
    "engine.tool_call_parser": ("NAME", "Parser of tool calls."),
    "engine.reasoning_parser": ("NAME", "Parser of reasoning."),
    "memory.context_length": ("TOKENS", "Longest context, such as 512k."),
    "memory.mem_fraction_static": ("FRACTION", "Share of GPU memory for weights and KV pool, or auto."),
    "memory.max_total_tokens": ("TOKENS", "Size of the KV pool."),
    "memory.max_running_requests": ("COUNT", "Requests that run at once."),
    "memory.chunked_prefill_size": ("TOKENS", "Tokens of one prefill chunk; -1: no chunks."),
    "memory.max_prefill_tokens": ("TOKENS", "Tokens of one prefill batch."),
    "memory.kv_cache_dtype": ("NAME", "Type of the KV cache."),
    "memory.swa_full_tokens_ratio": ("FRACTION", "Sliding-window pool as a share of the full one."),
    "memory.cuda_graph_max_bs_decode": ("COUNT", "Largest decode batch with a CUDA graph."),
    "transfer.backend": ("NAME", "How a prefill hands KV to a decode: nixl, mooncake or mooncake_tcp."),
    "transfer.bootstrap_port": ("PORT", "Port on which a prefill meets its decode."),
    "router.python": ("FILE", "Python interpreter that sglang-router is installed for, if not the engine's."),
    "router.policy": ("NAME", "How the router chooses a worker: cache_aware, round_robin, random or manual."),
    "router.metrics_port": ("PORT", "Port of the router's own metrics."),
}
SWITCHES = {
    "enable_metrics": "Serve Prometheus metrics at /metrics.",
    "engine.trust_remote_code": "Let the engine run code from the model folder.",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line asks for: where, from which config, and what it overrides."""

    root: Path
    file: Path | None
    flags: Mapping[str, object]

    def host(self) -> "Host":
        """This machine, its files under the root asked for."""
        from dsv4ctl.host import Host

        return Host.real(self.root)

    def path(self) -> Path:
        """The config file: --config, or the one under the root."""
        from dsv4ctl.store import Paths

        return self.file or Paths(self.root).config

    def of_plan(self, saved: "SavedPlan") -> "Asked":
        """What a saved plan asks for, on this machine."""
        flags = {**dict(saved.options), **dict(saved.switches)}
        return Asked(self.root, Path(saved.config) if saved.config else None, flags)

    def effective(self) -> "Effective":
        """The checked config with the source of every value. A missing file is a problem only if it was named."""
        from dsv4ctl import config

        path = self.path()
        try:
            with path.open("rb") as file:
                content = file.read(config.MOST_BYTES)
        except FileNotFoundError:
            if path.is_symlink():
                raise Problem(f"cannot read {path}: it is a link to {path.readlink()}, which is not there") from None
            if self.file:
                raise WrongOption(f"cannot read {path}: there is no such file", hint="dsv4ctl config example") from None
            return config.load(None, self.flags, path=str(path))
        except OSError as error:
            raise Problem(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from None
        return config.load(config.decode(content, path=str(path)), self.flags, path=str(path))

    def spec(self) -> "HostSpec":
        """The checked configuration."""
        return self.effective().spec


def root_option(command: Function) -> Function:
    """--root, given to the command as `root`."""
    return click.option(
        "--root",
        type=click.Path(path_type=Path, file_okay=False),
        default=Path("/"),
        metavar="DIR",
        help="Keep and look for everything below this folder instead of /.",
    )(command)


def roles_option(words: str) -> Callable[[Function], Function]:
    """--role, given to the command as `roles`."""
    return click.option("--role", "roles", multiple=True, metavar="ROLE", help=words)


def spec_options(command: Function) -> Function:
    """--root, --config and every option that overrides a key of the config, given to the command as one `asked`."""

    @functools.wraps(command)
    def collected(*, root: Path, config_file: Path | None, **others: object) -> object:
        flags = {key: others.pop(_parameter(key)) for key in (*TEXTS, *SWITCHES)}
        asked = Asked(root, config_file, {key: value for key, value in flags.items() if value is not None})
        return command(asked=asked, **others)

    return root_option(_config_option(_overrides(collected)))


def terms_options(command: Function) -> Function:
    """On which terms a change is made: --evict, --reason, --wait, --resume, --no-revert, --keep."""
    options = (
        evict_option,
        reason_option,
        wait_option,
        click.option("--resume", is_flag=True, help="End a pause, which else refuses it."),
        click.option(
            "--no-revert", "revert", is_flag=True, default=True, flag_value=False,
            help="When it fails, do not go back to the last good release.",
        ),
        click.option(
            "--keep", type=click.IntRange(1), default=KEPT, metavar="COUNT", show_default=True,
            help="Keep so many releases; never fewer than what runs and the last good one.",
        ),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def evict_option(command: Function) -> Function:
    """--evict PID, given to the command as a tuple."""
    return click.option(
        "--evict",
        multiple=True,
        type=click.IntRange(2),
        metavar="PID",
        help="End this foreign holder; may be given again.",
    )(command)


def full_option(command: Function) -> Function:
    """--full"""
    return click.option("--full", is_flag=True, help="Show the whole text of new and removed unit files, too.")(command)


def require_dry_run(command: str, *, full: bool, dry_run: bool) -> None:
    """Raises WrongOption for a --full of a command that changes the host, and shows texts only when it does not."""
    if full and not dry_run:
        raise WrongOption(
            "cannot show texts while the host is changed: --full is for --dry-run",
            hint=f"dsv4ctl {command} --dry-run --full",
        )


def reason_option(command: Function) -> Function:
    """--reason TEXT"""
    return click.option("--reason", default="", metavar="TEXT", help="Why; it is kept in the history.")(command)


def wait_option(command: Function) -> Function:
    """--wait [SECONDS], given to the command as `wait_s`."""
    return click.option(
        "--wait",
        "wait_s",
        is_flag=False,
        flag_value=FOREVER,
        default=0.0,
        type=Seconds(forever=True),
        metavar="[SECONDS]",
        help="Wait for another dsv4ctl that is at work: as long as it takes, or so many seconds.",
    )(command)


def _config_option(command: Function) -> Function:
    return click.option(
        "--config",
        "config_file",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Config to read instead of /etc/dsv4ctl/config.toml.",
    )(command)


def _overrides(command: Function) -> Function:
    for key, words in reversed(SWITCHES.items()):
        flag = option_of(key)
        command = click.option(f"{flag}/--no-{flag[2:]}", _parameter(key), default=None, help=words)(command)
    for key, (metavar, words) in reversed(TEXTS.items()):
        command = click.option(option_of(key), _parameter(key), metavar=metavar, help=words)(command)
    return command


def below(root: Path) -> str:
    """What a hint adds for another root than /: ` --root DIR`, or ''."""
    return "" if root == Path("/") else f" --root {shlex.quote(str(root))}"


def elsewhere(path: Path, usual: Path) -> str:
    """What a hint adds for a config that is not where commands look for one by themselves: ` --config FILE`, or ''."""
    return "" if path == usual else f" --config {shlex.quote(str(path))}"


def numbers(text: str) -> tuple[int, ...]:
    """The numbers in "0-3" or "0,2,4-6". Raises click's usage error for anything else."""
    found: list[int] = []
    for part in filter(None, text.replace(" ", "").split(",")):
        first, dash, last = part.partition("-")
        is_number = first.isascii() and first.isdecimal() and len(first) <= GPU_DIGITS
        is_range = is_number and (not dash or (last.isascii() and last.isdecimal() and len(last) <= GPU_DIGITS))
        if not is_range or int(last or first) < int(first):
            raise click.BadParameter(f"'{text}' is no list of GPUs such as 0-3 or 0,2")
        found += range(int(first), int(last or first) + 1)
    if not found:
        raise click.BadParameter(f"'{text}' names no GPU; a list is written 0-3 or 0,2")
    return tuple(dict.fromkeys(found))


def option_of(key: str) -> str:
    """The option that overrides a key: memory.context_length is --context-length, router.policy is --router-policy."""
    table, _, name = key.rpartition(".")
    # As config.faults says it; engines have an interpreter and arguments of their own.
    prefix = f"{table}-" if table in ("router", "transfer") else ""
    return "--" + (prefix + name).replace("_", "-")


def _parameter(key: str) -> str:
    return "override_" + key.replace(".", "_")
