"""A placed role -> the argv and environment of its SGLang engine. Knows SGLang's option names, 0.5.3 to 0.5.23."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import pairwise
from types import MappingProxyType

from dsv4ctl.model import EngineBuild, HostSpec, Role
from dsv4ctl.problems import BadConfig, EngineMissing

HALVES = frozenset({Role.PREFILL, Role.DECODE})
# A pair on one host hands its KV over from GPU to GPU (cuda_ipc); without it in the list UCX goes through host memory.
UCX_TLS = "cuda_copy,cuda_ipc,tcp"
# Both halves live here; without it each announces the first address that it finds, perhaps of another network.
PAIR_ADDRESS = "127.0.0.1"
# Beginnings of paths, so that /health is /health_generate, too.
QUIET = "--uvicorn-access-log-exclude-prefixes"
ASKED_OFTEN = ("/health", "/ready", "/metrics", "/v1/loads", "/v1/models")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A role's place on this host as the engine needs to know it; `secrets_file` is set when there is an API key.

    `gpus`: indices in PCI bus order. `may_bind`: the engine's own choice of NUMA nodes does no harm.
    """

    role: Role
    tp: int
    host: str
    port: int
    rendezvous_port: int | None
    bootstrap_port: int | None = None
    gpus: tuple[int, ...] = ()
    may_bind: bool = True
    secrets_file: str | None = None

    @property
    def is_half(self) -> bool:
        """Whether it prefills or decodes for another: one half of a pair."""
        return self.role in HALVES


Value = str | int | float | None


@dataclass(frozen=True, slots=True)
class Option:
    """An option that the configuration sets: its key, its spellings (today's first, then older ones) and its value.

    A value of None or False leaves it out, True makes it a switch. `aliases` mean the same to engines of all ages.
    """

    key: str
    spellings: tuple[str, ...]
    value: Callable[[HostSpec, Seat], Value]
    aliases: tuple[str, ...] = ()


def served_model_name(spec: HostSpec) -> str:
    """The name under which the model is served: as configured, else its path, which is the engine's own default."""
    return spec.engine.served_model_name or spec.engine.model or ""


def _engine(name: str, *spellings: str) -> Option:
    return Option(key=f"engine.{name}", spellings=spellings, value=lambda spec, _: getattr(spec.engine, name))


def _memory(name: str, *spellings: str) -> Option:
    return Option(key=f"memory.{name}", spellings=spellings, value=lambda spec, _: getattr(spec.memory, name))


OPTIONS: tuple[Option, ...] = (
    Option("engine.model", ("--model-path",), lambda spec, _: spec.engine.model, aliases=("--model",)),
    Option("engine.served_model_name", ("--served-model-name",), lambda spec, _: served_model_name(spec)),
    Option("host", ("--host",), lambda _, seat: seat.host),
    Option("port", ("--port",), lambda _, seat: seat.port),
    Option("mode", ("--tp-size",), lambda _, seat: seat.tp, aliases=("--tensor-parallel-size",)),
    # Only the port of the rendezvous is ours to choose: torch's TCPStore listens on every address whatever --host and
    # --dist-init-addr say (seen with SGLang 0.5.23 and torch 2.14).
    Option("internal_port", ("--nccl-port",), lambda _, seat: seat.rendezvous_port),
    _memory("context_length", "--context-length"),
    _memory("mem_fraction_static", "--mem-fraction-static"),
    _memory("max_total_tokens", "--max-total-tokens"),
    _memory("max_running_requests", "--max-running-requests"),
    _memory("chunked_prefill_size", "--chunked-prefill-size"),
    _memory("max_prefill_tokens", "--max-prefill-tokens"),
    _memory("kv_cache_dtype", "--kv-cache-dtype"),
    _memory("swa_full_tokens_ratio", "--swa-full-tokens-ratio"),
    # Today the old name is the beginning of two new ones, and an engine that is given it exits with 2.
    _memory("cuda_graph_max_bs_decode", "--cuda-graph-max-bs-decode", "--cuda-graph-max-bs"),
    # The proof of a pair reads in the counters of both halves that each did its part.
    Option("enable_metrics", ("--enable-metrics",), lambda spec, seat: spec.enable_metrics or seat.is_half),
    Option("mode", ("--disaggregation-mode",), lambda _, seat: str(seat.role) if seat.is_half else None),
    Option(
        "transfer.backend",
        ("--disaggregation-transfer-backend",),
        lambda spec, seat: spec.transfer.backend if seat.is_half else None,
    ),
    Option("transfer.bootstrap_port", ("--disaggregation-bootstrap-port",), lambda _, seat: seat.bootstrap_port),
    _engine("tool_call_parser", "--tool-call-parser"),
    _engine("reasoning_parser", "--reasoning-parser"),
    _engine("trust_remote_code", "--trust-remote-code"),
    # Two words: the engine ignores --config=FILE without a sound. It reads one such file only.
    Option("api_key_file", ("--config",), lambda _, seat: seat.secrets_file),
)

# Options that would undo what is set elsewhere: another rendezvous, another GPU than the one that was looked at, a key
# that everybody can read in /proc.
_ALSO_OURS = {
    "--api-key": "api_key_file",
    "--dist-init-addr": "internal_port",
    "--nccl-init-addr": "internal_port",
    "--base-gpu-id": "gpus",
    "--gpu-id-step": "gpus",
}


def managed_options() -> Mapping[str, str]:
    """Every option string that the configuration sets, aliases and older spellings included -> the key that sets it."""
    ours = {name: option.key for option in OPTIONS for name in (*option.spellings, *option.aliases)}
    return MappingProxyType(ours | _ALSO_OURS)


# Those of the options that are there or not there, without a value.
SWITCHES = frozenset({"--enable-metrics", "--trust-remote-code"})


def today(name: str) -> str:
    """An option in today's spelling; as it is when it is none of those that the configuration sets."""
    return next((o.spellings[0] for o in OPTIONS if name in (*o.spellings, *o.aliases)), name)


def command(spec: HostSpec, seat: Seat, build: EngineBuild) -> tuple[str, ...]:
    """The whole argv of the engine in this seat, with every option in the spelling that this build knows.

    An option is there when the build's own --help lists exactly its string: argparse also takes beginnings of options,
    so that trying one proves nothing. Raises EngineMissing with every option and value that the build does not know.
    """
    if seat.role is Role.ROUTER:
        raise EngineMissing("cannot start an engine as a router: the router is a program of its own")
    if not spec.engine.model:
        raise EngineMissing("cannot start an engine: engine.model is not configured", hint="dsv4ctl init")
    if not build.options:
        raise EngineMissing(f"cannot tell what {_name(build)} can do: the options of its --help are not known")
    wanted = [(option, option.value(spec, seat)) for option in OPTIONS]
    given = [(option, value) for option, value in wanted if value is not None and value is not False]
    faults = [fault for option, value in given if (fault := _fault(option, value, build))]
    faults += [fault for word in spec.engine.args if (fault := _fault_of_argument(word, build))]
    if faults:
        lines = "".join(f"\n  {fault}" for fault in faults)
        raise EngineMissing(
            f"cannot start {_name(build)} as configured:{lines}",
            hint=f"{' '.join((build.python, *build.launch))} --help   lists what it knows; engine.python names another",
        )
    words = [word for option, value in given for word in _words(_spelling(option, build), value)]
    return (build.python, *build.launch, *words, *_quiet(spec, build), *spec.engine.args)


def _quiet(spec: HostSpec, build: EngineBuild) -> tuple[str, ...]:
    """Has the engine log no line for what its supervisor, its router and a monitoring ask every few seconds."""
    theirs = {word.partition("=")[0] for word in spec.engine.args}
    return () if QUIET not in build.options or QUIET in theirs else (QUIET, *ASKED_OFTEN)


def has_random_weights(words: Sequence[str]) -> bool:
    """Whether an engine is told not to read its weights (--load-format dummy): then no answer of it means anything."""
    return ("--load-format", "dummy") in pairwise(words) or "--load-format=dummy" in words


def _name(build: EngineBuild) -> str:
    return f"SGLang {build.version} ({build.python})"


def _spelling(option: Option, build: EngineBuild) -> str:
    return next((name for name in (*option.spellings, *option.aliases) if name in build.options), "")


def _words(spelling: str, value: Value) -> tuple[str, ...]:
    if value is True:
        return (spelling,)
    text = str(value)
    # argparse reads a word that begins with a dash as an option, unless it is a number.
    bare = not text.startswith("-") or isinstance(value, int | float)
    return (spelling, text) if bare else (f"{spelling}={text}",)


def _fault(option: Option, value: Value, build: EngineBuild) -> str:
    """Why this build cannot be given this option with this value; '' when it can."""
    if not (spelling := _spelling(option, build)):
        names = " nor ".join(option.spellings)
        return f"{option.key}: it has no option {names}"
    # The engine keeps the colon for "model:adapter" and refuses it in a name.
    if spelling == "--served-model-name" and ":" in str(value):
        return f"{option.key}: a served name cannot hold a colon, and {value} does"
    known = build.choices.get(spelling)
    if value is True or known is None or str(value) in known:
        return ""
    return f"{option.key}: it knows no {spelling} {value}{_meant(str(value), known) or _listed(known)}"


def _fault_of_argument(word: str, build: EngineBuild) -> str:
    """Why the engine would not take this extra argument: it exits with 2 then, or reads it as some longer option."""
    name = word.partition("=")[0]
    if not name.startswith("--") or name in build.options:
        return ""
    return f"engine.args: it has no option {name}{_meant(name.replace('_', '-'), build.options)}"


def _meant(word: str, known: tuple[str, ...] | frozenset[str]) -> str:
    near = get_close_matches(word, sorted(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _listed(known: tuple[str, ...]) -> str:
    return f"; it knows {', '.join(known)}"


def environment(spec: HostSpec, seat: Seat, cache_folder: str) -> tuple[tuple[str, str], ...]:
    """The environment variables of the engine in this seat with a persistent cache folder.

    The operator's own variables win over ours but for those that say which GPUs. GPUs are named by index: SGLang reads
    CUDA_VISIBLE_DEVICES with int() and, given UUIDs, goes on without its custom all-reduce and warns only (seen in
    0.5.3 and 0.5.23, custom_all_reduce_utils.py). Proxies are bypassed for our own addresses, because the engine's
    warm-up talks to its own URL.
    """
    theirs = dict(spec.engine.environment)
    transfer = _transfer(spec, seat)
    bypass = _no_proxy(seat.host, transfer | theirs)
    ours = {
        # For the caches that do not follow SGLANG_CACHE_DIR: a service user may have no home.
        "HOME": cache_folder,
        "SGLANG_CACHE_DIR": f"{cache_folder}/sglang",
        # Without these a crashed engine keeps its port for 65 s more, to dump stacks and CUDA cores that nobody reads.
        "SGLANG_PYSPY_DUMP_BEFORE_CRASH": "0",
        "SGLANG_CUDA_COREDUMP_BEFORE_CRASH": "0",
        **({} if seat.may_bind else {"SGLANG_AUTO_NUMA_BIND": "0"}),
        **transfer,
    }
    fixed = {
        "no_proxy": bypass,
        "NO_PROXY": bypass,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(str(gpu) for gpu in seat.gpus),
    }
    return tuple((ours | theirs | fixed).items())


def _transfer(spec: HostSpec, seat: Seat) -> dict[str, str]:
    """What the transfer of KV between the halves of a pair needs to be told."""
    if not seat.is_half:
        return {}
    over_ucx = spec.transfer.backend == "nixl" and seat.gpus
    return {"SGLANG_HOST_IP": PAIR_ADDRESS, **({"UCX_TLS": UCX_TLS} if over_ucx else {})}


def _no_proxy(host: str, theirs: Mapping[str, str]) -> str:
    """What must not go through a proxy: the operator's list and every address of our own."""
    listed = [part.strip() for name in ("no_proxy", "NO_PROXY") for part in theirs.get(name, "").split(",")]
    announced = [theirs.get(name, "") for name in ("SGLANG_HOST_IP", "HOST_IP")]
    # Older HTTP clients of Python fail at an IPv6 address in the list, so it is there only where it is needed.
    loopback = ["localhost", "127.0.0.1", *(["::1"] if ":" in host else [])]
    own = [*loopback, "0.0.0.0", host, *announced]  # noqa: S104 - named, not bound
    return ",".join(dict.fromkeys(part for part in (*listed, *own) if part))


def secrets_yaml(key: str) -> str:
    """The text of the file that hands an API key to the engine (`--config FILE`), readable for nobody else.

    Raises BadConfig for a key that the engine cannot take: it turns the file into `--api-key KEY`, so that a key may
    not begin with a dash, and it compares keys with a function that fails for anything but ASCII.
    """
    if why := _why_unusable(key):
        raise BadConfig((f"cannot use the API key: {why}",), hint="api_key_file names the file that holds it")
    quoted = key.replace("\\", "\\\\").replace('"', '\\"')
    return f'api-key: "{quoted}"\n'


def _why_unusable(key: str) -> str:
    if not key:
        return "it is empty"
    if not (key.isascii() and key.isprintable()) or key != key.strip():
        return "allowed are printable ASCII characters, without blanks at its ends"
    if key.startswith("-"):
        return "it begins with a dash, and the engine would read it as an option"
    return ""
