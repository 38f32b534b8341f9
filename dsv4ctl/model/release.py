"""What a configuration becomes on a machine: instances, files, and the release that holds them."""

from dataclasses import dataclass

from dsv4ctl.model.asked import Limits, Role

ANYWHERE = "0.0.0.0"  # noqa: S104 -- looked at, not bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A NUMA node and its CPUs, to which a unit is bound: threads and memory together, or not at all."""

    node: int
    cpus: tuple[int, ...]


def by_job(**ports: int | None) -> tuple[tuple[str, int], ...]:
    """The ports that are there, each with its job."""
    return tuple((job, port) for job, port in ports.items() if port is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Another instance of the same mode that an instance works with.

    Only a router's peers have an address (`port` 0: none): nobody else asks them, and the digest of an engine that has
    loaded for a quarter of an hour must not change with the router's port. `repeats`: its model has real weights.
    """

    name: str
    role: Role
    unit: str
    host: str = ""
    port: int = 0
    bootstrap_port: int | None = None
    repeats: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A role placed on this host; one unit each. `digest` is over everything else that reaches the engine.

    A router has no rendezvous, only a prefill a bootstrap port, only a router a metrics port of its own. `peers`: of a
    router its workers, of an engine its other half, if it is one, and the router. `together`: why a router has both
    halves behind it restarted when one is, '' when one may come back alone.
    """

    name: str
    role: Role
    unit: str
    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    host: str
    port: int
    rendezvous_port: int | None
    tp: int
    gpus: tuple[int, ...]
    gpu_uuids: tuple[str, ...]
    model: str
    served_model_name: str
    context_length: int | None
    user: str | None
    api_key_file: str | None
    secrets_file: str | None
    limits: Limits
    bootstrap_port: int | None = None
    metrics_port: int | None = None
    binding: Binding | None = None
    peers: tuple[Peer, ...] = ()
    together: str = ""
    digest: str = ""

    @property
    def ports(self) -> tuple[tuple[str, int], ...]:
        """Every port the instance binds, with its job."""
        return by_job(
            http=self.port,
            rendezvous=self.rendezvous_port,
            bootstrap=self.bootstrap_port,
            metrics=self.metrics_port,
        )

    @property
    def binds(self) -> tuple[tuple[str, int], ...]:
        """Address and port of everything it binds. torch's TCPStore, the rendezvous, takes no address: it is on all."""
        return tuple((ANYWHERE if job == "rendezvous" else self.host, port) for job, port in self.ports)


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedFile:
    """A file a release puts on the host: absolute path and whole text."""

    path: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The immutable outcome of a config on a machine."""

    digest: str
    mode: str
    instances: tuple[Instance, ...]
    files: tuple[RenderedFile, ...]
    notes: tuple[str, ...] = ()
