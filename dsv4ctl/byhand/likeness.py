"""A main process found beside the instance that would take its place: what differs, option by option. No secrets."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dsv4ctl import secret
from dsv4ctl.byhand.main import Main, carried
from dsv4ctl.engine import readback
from dsv4ctl.engine.readback import DEFAULTS, ROUTER_DEFAULTS, Launch, Program
from dsv4ctl.model import Instance
from dsv4ctl.placement import list_text

# Of a login shell's environment these are not the engine's, and yet it goes by them.
_SHELLS = ("HOME", "PATH")
NOTHING = "-"
# What the engine does about an option that it is not given, where that is no fixed value (SGLang 0.5.23).
_CHOSEN = {
    "--mem-fraction-static": "its own, by the GPU's size",
    "--nccl-port": "one of 22000-29999, drawn",
    "--context-length": "the model's",
    "--max-running-requests": "256 for DeepSeek-V4",
    "--chunked-prefill-size": "its own, by the GPU's size",
    "--cuda-graph-max-bs-decode": "its own, by the GPU's size",
}


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that would be otherwise: an option, a variable, or what the kernel does with the process."""

    what: str
    by_hand: str
    rendered: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Likeness:
    """A main process, the unit that would take its place, what would differ, and how many options would not."""

    main: Main
    unit: str
    differences: tuple[Difference, ...]
    same: int


def likeness(main: Main, instance: Instance) -> Likeness:
    """Compare argv, environment, user and CPUs."""
    rendered = readback.launch(instance.argv)
    ours, theirs = _options(main.launch), _options(rendered) if rendered else {}
    options = () if main.launch.wiped else tuple(_options_apart(main.launch, ours, theirs))
    named = {difference.what for difference in options}
    return Likeness(
        main=main,
        unit=instance.unit,
        differences=(*options, *_environment_apart(main, instance), *_kernel_apart(main, instance)),
        same=len(ours.keys() & theirs.keys() - named),
    )


def _options(launch: Launch) -> dict[str, str]:
    """Option -> what is given, as it may be shown; each occurrence of one that may be given again."""
    found: dict[str, list[str]] = {}
    for given in launch.options:
        shown = secret.args_shown((given.name, *given.values))[1:]
        found.setdefault(given.name, []).append(" ".join(shown) or "given")
    repeatable = ("--prefill", "--decode")
    return {name: "; ".join(values) if name in repeatable else values[-1] for name, values in found.items()}


def _options_apart(launch: Launch, ours: Mapping[str, str], theirs: Mapping[str, str]) -> Iterator[Difference]:
    defaults = {**DEFAULTS, "--served-model-name": ours.get("--model-path", "")}
    if launch.program is Program.ROUTER:
        defaults = dict(ROUTER_DEFAULTS)
    for name in sorted(ours.keys() | theirs.keys()):
        hand, rendered = ours.get(name, defaults.get(name)), theirs.get(name, defaults.get(name))
        if hand == rendered or _same_number(hand, rendered):
            continue
        yield Difference(name, _shown(name, ours, defaults), _shown(name, theirs, defaults))


def _same_number(one: str | None, other: str | None) -> bool:
    """Whether two texts are one number to the engine: 128Ki and 131072."""
    try:
        return readback.whole_number(one or "") == readback.whole_number(other or "")
    except ValueError:
        return False


def _shown(name: str, options: Mapping[str, str], defaults: Mapping[str, str]) -> str:
    if name in options:
        return options[name]
    return f"{defaults[name]} (its default)" if name in defaults else _CHOSEN.get(name, NOTHING)


def _environment_apart(main: Main, instance: Instance) -> Iterator[Difference]:
    # A router that has wiped its environment tells nothing of it.
    if not main.environment:
        return
    rendered = dict(instance.environment)
    names = {*carried(main.environment).variables, *carried(main.environment).secrets, *rendered, *_SHELLS}
    names |= {name for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER") if name in main.environment}
    for name in sorted(name for name in names if not name.startswith("DSV4CTL_")):
        hand, there = main.environment.get(name), rendered.get(name)
        if hand != there:
            yield Difference(f"environment {name}", _value(name, hand), _value(name, there))


def _value(name: str, value: str | None) -> str:
    return NOTHING if value is None else secret.value_shown(name, value)


def _kernel_apart(main: Main, instance: Instance) -> Iterator[Difference]:
    user = instance.user or "root"
    if main.process.user != user:
        yield Difference("user", main.process.user, user)
    bound = instance.binding
    if bound is not None and bound.cpus != main.cpus:
        yield Difference("CPUs", list_text(main.cpus), f"{list_text(bound.cpus)} (NUMA node {bound.node})")
