"""What a configuration allows that its operator should know. Knows the spec only."""

import ipaddress
from collections.abc import Iterator

from dsv4ctl import secret
from dsv4ctl.config.engine_args import option_of
from dsv4ctl.model import HostSpec

# systemctl show tells every user what Environment= holds; of EnvironmentFile= it tells the path only.
BETTER = "better: a file for root alone, named by `systemctl edit` as EnvironmentFile=-/etc/dsv4ctl/engine.env"


def warnings(spec: HostSpec) -> tuple[str, ...]:
    """What is allowed but dangerous: an open port without a key, secrets where every user of the host can read them."""
    return (*_open_port(spec), *_readable_secrets(spec))


def _open_port(spec: HostSpec) -> Iterator[str]:
    address = ipaddress.ip_address(spec.host)
    if address.is_loopback or spec.api_key_file:
        return
    where = "any interface of this host" if address.is_unspecified else spec.host
    yield (
        f"host {spec.host} without api_key_file: everyone who can reach {where} on port {spec.port} can use the engine "
        "and its control endpoints; give api_key_file, or leave host at 127.0.0.1"
    )


def _readable_secrets(spec: HostSpec) -> Iterator[str]:
    unit = "looks like a secret and will stand in the unit, where every user of this host can read it"
    for name, value in spec.engine.environment:
        if secret.value_shown(name, value) != value:
            yield f"engine.environment.{name} {unit}; {BETTER}"
    for key, args in (("engine.args", spec.engine.args), ("router.args", spec.router.args)):
        for hidden, arg in zip(secret.args_shown(args), args, strict=True):
            if hidden != arg:
                yield f"{key}: {option_of(arg) or 'a value'} {unit}, as in the process list"
