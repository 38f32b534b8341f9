"""The tables and keys of a configuration. Defaults are not here but in `model`, so that they stand in one place."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict

from dsv4ctl import modes
from dsv4ctl.config import words

_MOST_TOKENS = 2**30
_DAY = 86400

Port = Annotated[int, BeforeValidator(words.whole(1024, 65535, "a port"))]
# Room above it: every further instance takes its rendezvous port 10 higher.
InternalPort = Annotated[int, BeforeValidator(words.whole(1024, 65000, "a port"))]
Address = Annotated[str, BeforeValidator(words.address)]
Gpus = Annotated[tuple[int, ...], BeforeValidator(modes.parse_gpus)]
Ranks = Annotated[int, BeforeValidator(words.whole(1, modes.MOST_GPUS, "a number of ranks"))]
Switch = Annotated[bool, BeforeValidator(words.switch)]
File = Annotated[str, BeforeValidator(words.absolute_path("a file"))]
Folder = Annotated[str, BeforeValidator(words.absolute_path("a folder"))]
Checkpoint = Annotated[str, BeforeValidator(words.model_folder)]
Interpreter = Annotated[str, BeforeValidator(words.interpreter)]
Tokens = Annotated[
    int, BeforeValidator(words.whole(1, _MOST_TOKENS, 'a number of tokens such as 524288, "512k" or "1M",'))
]
Chunk = Annotated[int, BeforeValidator(words.chunk)]
Requests = Annotated[int, BeforeValidator(words.whole(1, 65536, "a number of requests"))]
# None is "auto", as in the model.
AutoFraction = Annotated[float | None, BeforeValidator(words.or_auto(words.share(up_to_one=False)))]
Ratio = Annotated[float, BeforeValidator(words.share(up_to_one=True))]
UpToADay = Annotated[int, BeforeValidator(words.duration(1, _DAY))]
UpToAnHour = Annotated[int, BeforeValidator(words.duration(1, 3600))]
Starts = Annotated[int, BeforeValidator(words.whole(1, 100, "a number of starts"))]
Argument = Annotated[str, BeforeValidator(words.argument)]
RouterArgument = Annotated[str, BeforeValidator(words.router_argument)]
Backend = Annotated[str, BeforeValidator(words.one_of("nixl", "mooncake", "mooncake_tcp"))]
Policy = Annotated[str, BeforeValidator(words.policy)]
VariableName = Annotated[str, BeforeValidator(words.variable_name)]
VariableValue = Annotated[str, BeforeValidator(words.variable_value)]
ModeName = Annotated[str, BeforeValidator(words.pattern(words.MODE_NAME, words.MODE_NAME_ALLOWED))]
Choice = Annotated[
    str,
    BeforeValidator(words.pattern(r"[A-Za-z0-9][\w.-]{0,60}", "a word as the engine's --help lists it, such as auto")),
]
Version = Annotated[
    str, BeforeValidator(words.pattern(r"[0-9][0-9A-Za-z.+!_-]{0,60}", 'a version in quotes, such as "0.5.23"'))
]
User = Annotated[
    str,
    BeforeValidator(words.pattern(r"[A-Za-z_][A-Za-z0-9_.-]{0,30}", "the name of a user of this host, not a number")),
]
ServedName = Annotated[str, BeforeValidator(words.served_name)]


class Table(BaseModel):
    """What all tables have in common: no unknown key, nothing to be changed later."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class EngineTable(Table):
    """[engine]"""

    python: Interpreter | None = None
    venv: Folder | None = None
    model: Checkpoint | None = None
    served_model_name: ServedName | None = None
    version: Version | None = None
    tool_call_parser: Choice | None = None
    reasoning_parser: Choice | None = None
    trust_remote_code: Switch | None = None
    args: tuple[Argument, ...] | None = None
    environment: dict[VariableName, VariableValue] | None = None


class MemoryTable(Table):
    """[memory]"""

    context_length: Tokens | None = None
    mem_fraction_static: AutoFraction = None
    max_total_tokens: Tokens | None = None
    max_running_requests: Requests | None = None
    chunked_prefill_size: Chunk | None = None
    max_prefill_tokens: Tokens | None = None
    kv_cache_dtype: Choice | None = None
    swa_full_tokens_ratio: Ratio | None = None
    cuda_graph_max_bs_decode: Requests | None = None


class TransferTable(Table):
    """[transfer]"""

    backend: Backend | None = None
    bootstrap_port: Port | None = None


class RouterTable(Table):
    """[router]"""

    python: Interpreter | None = None
    policy: Policy | None = None
    metrics_port: Port | None = None
    args: tuple[RouterArgument, ...] | None = None


class LimitsTable(Table):
    """[limits]"""

    start: UpToADay | None = None
    stall: UpToADay | None = None
    driver: UpToAnHour | None = None
    drain: UpToAnHour | None = None
    engine_stop: UpToAnHour | None = None
    proof: UpToAnHour | None = None
    watch: UpToAnHour | None = None
    unhealthy: UpToADay | None = None
    restart: UpToAnHour | None = None
    restart_max: UpToADay | None = None
    starts: Starts | None = None
    window: UpToADay | None = None


class RoleTable(Table):
    """One role of a mode: server = { tp = 4, gpus = [0, 1, 2, 3] }; of a built-in mode, what is to be different."""

    tp: Ranks | None = None
    gpus: Gpus | None = None


class ModeTable(Table):
    """[modes.NAME]"""

    server: RoleTable | None = None
    prefill: RoleTable | None = None
    decode: RoleTable | None = None


class Config(Table):
    """The whole file."""

    mode: ModeName | None = None
    host: Address | None = None
    port: Port | None = None
    gpus: Gpus | None = None
    internal_port: InternalPort | None = None
    user: User | None = None
    api_key_file: File | None = None
    enable_metrics: Switch | None = None
    engine: EngineTable = EngineTable()
    memory: MemoryTable = MemoryTable()
    transfer: TransferTable = TransferTable()
    router: RouterTable = RouterTable()
    limits: LimitsTable = LimitsTable()
    modes: dict[ModeName, ModeTable] = {}


TABLES: Mapping[str, type[Table]] = {
    "engine": EngineTable,
    "memory": MemoryTable,
    "transfer": TransferTable,
    "router": RouterTable,
    "limits": LimitsTable,
}
TOP_KEYS = tuple(name for name in Config.model_fields if name not in (*TABLES, "modes"))
# Every key, in the order in which it is shown; below engine.environment and modes the names are the operator's.
KEYS: tuple[str, ...] = (
    *TOP_KEYS,
    *(f"{table}.{name}" for table, model in TABLES.items() for name in model.model_fields),
)


def keys_of(path: tuple[str | int, ...]) -> tuple[str, ...]:
    """The keys that are known in the table at `path`; () where names are the operator's or there is no table."""
    match path:
        case ():
            return tuple(Config.model_fields)
        case (str(table),) if table in TABLES:
            return tuple(TABLES[table].model_fields)
        case ("modes", str(name)) if name in modes.BUILT_IN:
            return tuple(map(str, modes.roles(modes.BUILT_IN[name])))
        case ("modes", _):
            return tuple(ModeTable.model_fields)
        case ("modes", _, _):
            return tuple(RoleTable.model_fields)
    return ()
