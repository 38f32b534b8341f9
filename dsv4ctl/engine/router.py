"""Placed workers -> the argv and environment of the router in front of them. Knows sglang-router's options (0.3.2)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dsv4ctl.model import EngineBuild, HostSpec, Role
from dsv4ctl.problems import EngineMissing

PACKAGE = "sglang_router"
LAUNCH = ("-m", f"{PACKAGE}.launch_router")
# The router takes a key on its command line only, which everybody can read in /proc; so this program reads it from the
# file that the engines' keys are in, too, and hands it over in memory. That file is `api-key: "KEY"`, KEY as in JSON.
WITH_KEY = (
    "import json, sys; from sglang_router.launch_router import main; "
    "key = json.loads(open(sys.argv.pop(1)).read().partition(': ')[2]); sys.argv.append('--api-key=' + key); main()"
)
# After this it gives a worker up for good and stays up without it: nobody would notice. A first start with cold caches
# takes a quarter of an hour, a worker that fails and is started again much longer.
REGISTER_S = 7 * 86400

# Option -> the key of the configuration that sets it.
MANAGED: Mapping[str, str] = {
    "--host": "host",
    "--port": "port",
    "--worker-urls": "mode",
    "--pd-disaggregation": "mode",
    "--prefill": "mode",
    "--decode": "mode",
    "--policy": "router.policy",
    "--prometheus-host": "host",
    "--prometheus-port": "router.metrics_port",
    "--api-key": "api_key_file",
}
UNSUPPORTED: Mapping[str, str] = {
    "--mini-lb": "it is for debugging: without health checks and retries",
    "--service-discovery": "dsv4ctl names the workers; a router that looks for others cannot be proved",
    "--tls-cert-path": "dsv4ctl proves the router over plain HTTP; let a proxy in front of it speak TLS",
    "--tls-key-path": "dsv4ctl proves the router over plain HTTP; let a proxy in front of it speak TLS",
    "-h": "the router would print its help and exit",
    "--help": "the router would print its help and exit",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """An engine behind the router. The bootstrap port is a prefill's."""

    role: Role
    host: str
    port: int
    bootstrap_port: int | None = None

    @property
    def url(self) -> str:
        """Where the router reaches it. The host part is also where a decode looks for a prefill's bootstrap port."""
        return f"http://{bracketed(self.host)}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """The router's place on this host, and what is behind it; `secrets_file` is set when there is an API key."""

    host: str
    port: int
    metrics_port: int
    workers: tuple[Worker, ...]
    secrets_file: str | None = None


def command(spec: HostSpec, front: Front, build: EngineBuild, *, has_ready: bool) -> tuple[str, ...]:
    """The whole argv of the router. `has_ready`: the engines serve /ready.

    An option is there when the router's own --help lists exactly its string. What it must have and does not know is
    raised as EngineMissing, all at once; habits that an older router cannot be taught are left out, and so is every
    habit that the operator sets in router.args.
    """
    needed = tuple(_needed(spec, front))
    theirs = {word.partition("=")[0] for word in spec.router.args}
    # Behind a pair nobody else could answer: its clients are told at once.
    every = (*_habits(spec, build, has_ready=has_ready), *(() if is_pair(front) else _patience()))
    habits = [habit for habit in every if habit[0] in build.options and habit[0] not in theirs]
    if faults := [*_faults(needed, build), *_strange(theirs, build)]:
        raise EngineMissing(
            f"cannot start sglang-router {build.version} ({build.python}) as configured:"
            + "".join(f"\n  {fault}" for fault in faults),
            hint=f"{' '.join((build.python, *LAUNCH))} --help   lists what it knows; router.python names another",
        )
    launch = ("-c", WITH_KEY, front.secrets_file) if front.secrets_file else LAUNCH
    words = (word for option in (*needed, *habits) for word in option)
    return (build.python, *launch, *words, *spec.router.args)


def environment(cache_folder: str) -> tuple[tuple[str, str], ...]:
    """The router's environment: it needs no GPU, and it talks to our own addresses only, so no proxy either."""
    return (("CUDA_VISIBLE_DEVICES", ""), ("HOME", cache_folder), ("NO_PROXY", "*"), ("no_proxy", "*"))


def is_pair(front: Front) -> bool:
    """Whether a prefill and a decode are behind it, and not whole servers."""
    return any(worker.role is Role.PREFILL for worker in front.workers)


def _needed(spec: HostSpec, front: Front) -> Iterator[tuple[str, ...]]:
    # It takes an IPv6 address in brackets to listen on, and without them for its metrics (seen with 0.3.2).
    yield ("--host", bracketed(front.host))
    yield ("--port", str(front.port))
    yield ("--prometheus-host", front.host)
    yield ("--prometheus-port", str(front.metrics_port))
    # One prefill and one decode leave no choice; cache_aware would keep the text of every prompt all the same.
    yield ("--policy", spec.router.policy or ("round_robin" if is_pair(front) else "cache_aware"))
    yield from _workers(front)


def _workers(front: Front) -> Iterator[tuple[str, ...]]:
    if not is_pair(front):
        yield ("--worker-urls", *(worker.url for worker in front.workers))
        return
    yield ("--pd-disaggregation",)
    for worker in front.workers:
        bootstrap = (str(worker.bootstrap_port),) if worker.role is Role.PREFILL else ()
        yield (f"--{worker.role}", worker.url, *bootstrap)


def _habits(spec: HostSpec, build: EngineBuild, *, has_ready: bool) -> Iterator[tuple[str, ...]]:
    yield ("--worker-startup-timeout-secs", str(REGISTER_S))
    yield ("--worker-startup-check-interval", "2")
    if has_ready and "--health-check-endpoint" in build.options:
        # /ready answers at once and says 503 while it drains. It does not see a hung scheduler; the supervisor does.
        yield ("--health-check-endpoint", "/ready")
        interval_s, timeout_s, failures = 1, 3, 2
    else:
        # /health generates: it takes 1 s at least, and up to 20 s before the engine itself gives up.
        interval_s, timeout_s, failures = 10, 25, 3
    yield ("--health-check-interval-secs", str(interval_s))
    yield ("--health-check-timeout-secs", str(timeout_s))
    yield ("--health-failure-threshold", str(failures))
    yield ("--health-success-threshold", "1")
    # It counts a client's own mistakes (4xx) as failures of the engine, and then refuses everybody for a minute.
    yield ("--disable-circuit-breaker",)
    yield ("--shutdown-grace-period-secs", str(spec.limits.drain_s))


def _patience() -> Iterator[tuple[str, ...]]:
    """Tries of a request, until the router knows that a server has died: 0.1, 0.2, … 3.2 s apart.

    cache_aware chooses the server that knows the prompt's beginning, time and again. With its own five tries in 0.4 s
    the router (0.3.2) answers 500, and does so until two health checks have failed, while another server is idle.
    """
    yield ("--retry-max-retries", "7")
    yield ("--retry-initial-backoff-ms", "100")
    yield ("--retry-backoff-multiplier", "2")


def _faults(needed: tuple[tuple[str, ...], ...], build: EngineBuild) -> Iterator[str]:
    for name, *values in needed:
        known = build.choices.get(name)
        if name not in build.options:
            yield f"{MANAGED[name]}: it has no option {name}"
        elif known is not None and values[0] not in known:
            yield f"{MANAGED[name]}: it knows no {name} {values[0]}; it knows {', '.join(known)}"


def _strange(theirs: set[str], build: EngineBuild) -> Iterator[str]:
    for name in sorted(theirs):
        if name.startswith("--") and name not in build.options:
            yield f"router.args: it has no option {name}"


def bracketed(host: str) -> str:
    """An address as it stands in a URL: IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host
