"""Names and places of ours on a host, as systemd and the releases know them. Pure."""

TARGET = "dsv4.target"
SLICE = "dsv4.slice"
SERVICES = "dsv4-*.service"
# Engines that somebody started by hand and that were moved below our slice: dsv4-adopted-ROLE-PORT.scope.
ADOPTED_SCOPES = "dsv4-adopted-*.scope"
UNIT_FOLDER = "/etc/systemd/system"
INSTANCE_FOLDER = "/var/lib/dsv4ctl/instances"
# A section that systemd skips, and that every unit of ours has.
MARKER = "[X-Dsv4ctl]"

# Variables that every engine gets, and workers wipe: absence proves nothing.
RELEASE_VARIABLE = "DSV4CTL_RELEASE"
INSTANCE_VARIABLE = "DSV4CTL_INSTANCE"
# How a line of the supervisor's own begins, among those of its engine.
NOTE = "dsv4ctl: "


def instance_of(unit: str) -> str:
    """The instance's name in its unit's name: `dsv4-decode.service` -> `decode`."""
    return unit.removeprefix("dsv4-").removesuffix(".service")


def role_of(unit: str) -> str:
    """The role in a unit's name, whatever is known of it besides: `dsv4-server-1.service` -> `server`."""
    return instance_of(unit).rstrip("0123456789").rstrip("-")


def adopted_scope(role: str, port: int) -> str:
    """The scope for an adopted engine; `cgroups.adopted` reads it back."""
    return f"dsv4-adopted-{role}-{port}.scope"
