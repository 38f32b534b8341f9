"""Every path of ours on a host. Knows names, touches nothing."""

from dataclasses import dataclass
from pathlib import Path

PROBE_LOCK = "probe.lock"


@dataclass(frozen=True, slots=True)
class Paths:
    """Every path of ours on a host, under one root."""

    root: Path

    @property
    def config(self) -> Path:
        """The operator's configuration."""
        return self.root / "etc/dsv4ctl/config.toml"

    @property
    def units(self) -> Path:
        """Where systemd looks for the administrator's units."""
        return self.root / "etc/systemd/system"

    @property
    def state(self) -> Path:
        """What outlives a reboot."""
        return self.root / "var/lib/dsv4ctl"

    @property
    def runtime(self) -> Path:
        """What a reboot forgets."""
        return self.root / "run/dsv4ctl"

    @property
    def cache(self) -> Path:
        """Kernel caches, one folder an instance."""
        return self.root / "var/cache/dsv4ctl"

    @property
    def instances(self) -> Path:
        """What supervisors read: NAME-DIGEST.json."""
        return self.state / "instances"

    @property
    def releases(self) -> Path:
        """One numbered folder a release."""
        return self.state / "releases"

    @property
    def engines(self) -> Path:
        """What engines' --help said, by executable and version."""
        return self.state / "engines"

    @property
    def audit(self) -> Path:
        """One JSON line a change."""
        return self.state / "audit.jsonl"

    @property
    def lock(self) -> Path:
        """Held by whoever changes the host."""
        return self.runtime / "lock"

    @property
    def pause(self) -> Path:
        """The pause that an operator asked for."""
        return self.state / "pause.json"

    @property
    def all_starts(self) -> Path:
        """What supervisors keep, one folder an instance."""
        return self.state / "starts"

    def under(self, path: str) -> Path:
        """Where an absolute path of a release lies under this root."""
        return self.root / path.lstrip("/")

    def run_state(self, name: str) -> Path:
        """What the instance's supervisor last said of itself."""
        return self.runtime / name / "state.json"

    def probe_lock(self, name: str) -> Path:
        """Held by whoever sends the instance a generation to prove it: a command or its own supervisor, which may write
        nowhere else below /run."""
        return self.runtime / name / PROBE_LOCK

    def secrets(self, name: str) -> Path:
        """The engine's own file with the API key, mode 0600."""
        return self.runtime / name / "secrets.yaml"

    def starts(self, name: str) -> Path:
        """How long the phases of earlier starts took."""
        return self.all_starts / name / "starts.jsonl"
