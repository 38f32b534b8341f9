"""Main processes found by hand-started engines -> the config that would start the same, and what it cannot say."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dsv4ctl import modes, who
from dsv4ctl.byhand.asked import Asked, Value
from dsv4ctl.byhand.main import Main, carried
from dsv4ctl.config.checks import PORTS_EACH
from dsv4ctl.config.schema import KEYS
from dsv4ctl.model import Mode, Role
from dsv4ctl.problems import Problem

KEY_FILE = "/etc/dsv4ctl/key"
# What only one half of a pair heeds: the other is not hurt by it.
_OF_ONE_HALF = frozenset({"memory.chunked_prefill_size", "memory.cuda_graph_max_bs_decode", "transfer.bootstrap_port"})
# Each half has its own, and dsv4ctl gives them itself.
_EACH_ITS_OWN = frozenset({"host", "port", "internal_port", "enable_metrics"})

Setting = Value | tuple[str, ...] | tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A config as text, and what its reader should know. `api_key` is in neither."""

    text: str
    notes: tuple[str, ...]
    key_file: str = ""
    api_key: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """Who belongs together: one server, two servers behind a router, or a prefill and a decode."""

    engines: tuple[Main, ...]
    router: Main | None = None

    @property
    def asked(self) -> tuple[Asked, ...]:
        """What the engines ask for."""
        return tuple(main.asked for main in self.engines if main.asked)


def draft(mains: Sequence[Main], key_file: str = "") -> Draft:
    """The config for what runs. `key_file`: where the API key is to be, if there is one.

    Raises Problem for engines that do not go into one config.
    """
    roles = arrange(mains)
    mode, gpus = _mode(roles)
    keys, conflicts = _merged(roles)
    args, lonely = _arguments(roles)
    variables, strange = _environment(roles)
    api_key = next((asked.api_key for asked in roles.asked if asked.api_key), "")
    settings: dict[str, Setting] = {"mode": mode.name, **keys, **_front(roles)}
    settings |= {"gpus": gpus} if gpus is not None else {}
    settings |= {"engine.args": args} if args else {}
    settings |= {"user": user} if (user := roles.engines[0].process.user) != "root" else {}
    settings |= {"api_key_file": key_file or KEY_FILE} if api_key else {}
    notes = (*conflicts, *lonely, *strange, *_notes(roles))
    return Draft(
        text=_text(roles, mode, settings=settings, variables=variables, notes=notes),
        notes=notes,
        key_file=str(settings.get("api_key_file", "")),
        api_key=api_key,
    )


def arrange(mains: Sequence[Main]) -> Roles:
    """Who of them is what. Raises Problem where one config cannot hold them all."""
    by = {role: [main for main in mains if main.role is role] for role in Role}
    routers, servers, halves = by[Role.ROUTER], by[Role.SERVER], by[Role.PREFILL] + by[Role.DECODE]
    is_pair = not servers and len(by[Role.PREFILL]) == len(by[Role.DECODE]) == 1
    is_dual = not halves and len(servers) == 2 and all(m.asked and m.asked.tp == 4 for m in servers) and bool(routers)
    is_single = not halves and len(servers) == 1
    if len(routers) <= 1 and (is_pair or is_dual or is_single):
        return Roles(engines=tuple(servers or halves), router=routers[0] if routers else None)
    there = ", ".join(f"a {main.role} on port {main.port} (pid {main.process.pid})" for main in mains)
    raise Problem(
        f"cannot write one config for these: {there}; one holds a server, two servers of four ranks behind a router, or"
        " a prefill and a decode",
        hint="dsv4ctl adopt PORT...   names those that belong together",
    )


def _mode(roles: Roles) -> tuple[Mode, tuple[int, ...] | None]:
    """The mode, built in where one fits, and the GPUs where they are not the mode's own."""
    shapes = tuple((main.role, asked.tp, main.gpus) for main in roles.engines if (asked := main.asked))
    wanted = [(role, tp) for role, tp, _ in shapes]
    gpus = tuple(gpu for _, _, some in shapes for gpu in some)
    for mode in modes.BUILT_IN.values():
        engines = [shape for shape in mode.roles if shape.role is not Role.ROUTER]
        if [(shape.role, shape.tp) for shape in engines] == wanted:
            own = tuple(gpu for shape in engines for gpu in shape.gpus)
            return mode, None if gpus == own else gpus
    ranks = [str(tp) for _, tp in wanted]
    name = f"single-tp{ranks[0]}" if len(ranks) == 1 else f"pd-tp{'-'.join(dict.fromkeys(ranks))}"
    return Mode(name=name, roles=()), None


def _front(roles: Roles) -> dict[str, Setting]:
    """Where clients ask: at the router, if there is one, else at the only server."""
    asked = roles.asked[0].keys
    if roles.router is None:
        keys = {"host", "port", "internal_port", "enable_metrics"} if len(roles.engines) == 1 else set()
        return {key: asked[key] for key in keys & asked.keys() if (key, asked[key]) != ("enable_metrics", True)}
    front = roles.router
    if len(roles.engines) == 1:
        return {**_front(Roles(engines=roles.engines))}
    found: dict[str, Setting] = {"host": front.host, "port": front.port, "router.python": front.python}
    found |= _internal(roles)
    found |= {"router.metrics_port": front.metrics_port} if front.metrics_port else {}
    found |= {"router.policy": policy} if (policy := front.launch.get("--policy")) else {}
    return {key: value for key, value in found.items() if value}


def _internal(roles: Roles) -> dict[str, Setting]:
    """The first internal port, where the engines' own follow each other as dsv4ctl's do."""
    first, *others = [asked.keys.get("internal_port") for asked in roles.asked]
    follow = isinstance(first, int) and others == [first + PORTS_EACH * n for n in range(1, len(others) + 1)]
    return {"internal_port": first} if isinstance(first, int) and follow else {}


def _merged(roles: Roles) -> tuple[dict[str, Setting], tuple[str, ...]]:
    """The keys that all engines agree on, and a note for each on which they do not."""
    found: dict[str, Setting] = {}
    notes: list[str] = []
    for key in sorted({key for asked in roles.asked for key in asked.keys} - _EACH_ITS_OWN):
        said = [asked.keys.get(key) for asked in roles.asked]
        given = [value for value in said if value is not None]
        if all(value == said[0] for value in said) or (key in _OF_ONE_HALF and len(given) == 1):
            found[key] = given[0]
        else:
            each = ", ".join(
                f"{a.role} {'nothing' if v is None else v}" for a, v in zip(roles.asked, said, strict=True)
            )
            notes.append(f"{key} is left out: it is one for all roles, and here it is {each}")
    models = {main.model for main in roles.engines}
    if "engine.model" in found:
        found |= {"engine.model": models.pop()} if len(models) == 1 and "" not in models else {}
    return {**found, "engine.python": roles.engines[0].python}, tuple(notes)


def _arguments(roles: Roles) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The extra arguments that all engines have, and a note for each that one of them has alone."""
    common = [given for given in roles.asked[0].args if all(given in asked.args for asked in roles.asked)]
    alone = [(asked.role, given) for asked in roles.asked for given in asked.args if given not in common]
    args = tuple(word for given in common for word in (given.name, *given.values))
    notes = (f"{g.name} {g.value} of the {role} is left out: engine.args is for all roles" for role, g in alone)
    return args, tuple(" ".join(note.split()) for note in notes)


def _environment(roles: Roles) -> tuple[dict[str, str], tuple[str, ...]]:
    """The variables that all engines have, and notes of those that one has alone and of those that look secret."""
    each = [carried(main.environment) for main in roles.engines]
    common = {n: v for n, v in each[0].variables.items() if all(one.variables.get(n) == v for one in each)}
    alone = sorted({name for one in each for name in one.variables.keys() - common.keys()})
    hidden = sorted({name for one in each for name in one.secrets})
    same, public = "they are not the same for all roles", "everybody reads a unit and they look like secrets"
    reasons = ((same, alone), (public, hidden))
    notes = tuple(f"left out, for {why}: {', '.join(names)}" for why, names in reasons if names)
    return common, notes


def _notes(roles: Roles) -> Iterator[str]:
    for main in (*roles.engines, *([roles.router] if roles.router else [])):
        for left in main.asked.left_out if main.asked else ():
            yield f"{left} ({main.role}, pid {main.process.pid})"
        if main.asked and main.asked.keys.get("engine.model") and not main.model:
            yield f"engine.model: {main.asked.keys['engine.model']} leads to no folder on this host"
    if any(asked.is_half for asked in roles.asked) and roles.router is None:
        yield "no router runs in front of the pair; dsv4ctl adds one"
    if roles.router and len(roles.engines) == 1:
        yield f"the router on port {roles.router.port} is left out: mode single has none, and clients ask the server"
    elif roles.router and roles.router.launch.wiped:
        yield "the router has wiped its command line, so that only its ports are known; the rest is dsv4ctl's"
    if any(asked.api_key for asked in roles.asked):
        yield "the API key of its command line, which every user of this host can read, is not in the config"


def _text(
    roles: Roles,
    mode: Mode,
    *,
    settings: Mapping[str, Setting],
    variables: Mapping[str, str],
    notes: Sequence[str],
) -> str:
    lines = ["# Written by `dsv4ctl adopt` from what ran here. `dsv4ctl config example` explains every key."]
    lines += [f"# {main.role}: {who.words(main.process)}" for main in roles.engines]
    lines += [f"# {' '.join(note.split())}" for note in notes]
    tables: dict[str, list[str]] = {"": []}
    for key in KEYS:
        table, _, name = key.rpartition(".")
        if key in settings:
            tables.setdefault(table, []).append(f"{name} = {_toml(settings[key])}")
    if variables:
        tables["engine.environment"] = [f"{name} = {_toml(value)}" for name, value in variables.items()]
    if not mode.roles:
        tables[f"modes.{mode.name}"] = [
            f"{main.role} = {{ tp = {main.asked.tp}, gpus = {list(main.gpus)} }}"
            for main in roles.engines
            if main.asked
        ]
    lines += ["", *tables.pop("")]
    for table, entries in tables.items():
        lines += ["", f"[{table}]", *entries]
    return "\n".join(lines) + "\n"


def _toml(value: Setting) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    # A JSON string is a TOML basic string; DEL alone may stand in the one and not in the other.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f") if isinstance(value, str) else str(value)
