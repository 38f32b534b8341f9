"""How the stand-in engine shall behave: a JSON object of the keys below, each with its default when left out.

The file is read once, at the start of the server: $DSV4CTL_STANDIN_BEHAVIOUR, else /run/standin/<http port>.json,
else /run/standin/all.json, else none. An unknown key or a value of the wrong kind ends the server with exit status 1
and the whole list, so that no rehearsal silently rehearses nothing.

Pace (seconds, counts):
  import_s      untitled import phase of the main process and again of each child
  load_s        from a scheduler's title to its capacity line, all phases together
  weights_steps shards in the weights bar; null: as many as the model's index names
  graphs_steps  batch sizes in the graphs bar
  bind_late_s   wait between the end of the load and the bind of the HTTP port
  warmup_s      503 after the bind, before the warm-up request is sent (the real engine waits 1 s)
  token_s       time per generated token
  transfer_s    time that a prefill takes to send the KV of a request; it is in its queue of transfers meanwhile
  drain_poll_s  how often a draining server looks whether it may end (the real engine: 5 s)
  crash_settle_s  time for which a crashed server's port accepts and nothing answers (the real engine: 5 s); a rank that
                has not noticed the crash by then makes it wait another 60 s for core dumps, as in the real engine
  orphan_s      a process whose server is gone, and one that was left behind, ends by itself after this time

Misdeeds during the load; a phase is one of import, dist, weights, pools, kernels, graphs, warmup:
  stall_in      the phase in which the schedulers stop for ever, halfway
  crash_in      the phase in which rank 0 raises an exception, which ends the server with SIGKILL (status -9)
  oom_in        as crash_in, with CUDA's out-of-memory error
  die_in        the phase in which rank 0 is killed as by the kernel's OOM killer ("Rank 0 scheduler died", status 1)
  exit          1, 2 or 3: the server ends at once with that status and the real engine's words
  helper_takes_port  "listening" or "bound": a child of the server itself takes the HTTP port during the load
  chatty_lines  so many log lines, as fast as they can be written, before the capacity line
  dump_to       file into which argv, environment, working directory and limits are written as JSON at the start

  live          file of serving misdeeds, in JSON like this one, that hold as long as it is there; it is looked at for
                each request and each token. Of both tables below: no_transfer, wrong_tokens, decode_never_answers,
                die_on_bare_generate, garbage_generation, health_but_no_generation
  generations_to  file to which a line `begin REQUEST` or `end REQUEST` is added for each generation of a user's

Misdeeds while serving; seconds count from the ready line:
  health_but_no_generation  /health is green, as where it generates nothing; requests of users and /health_generate hang
  generation_works_after_s  requests of users hang until so many seconds after the start of the server
  garbage_generation  "empty" (no text), "no_choices" or "not_json": what a generation answers with 200
  wrong_model_name    the name that /v1/models tells instead of the served one
  status_401          every endpoint that asks for a key answers 401, whatever key is sent
  without_ready       /ready is unknown (404), as in older builds
  lose_port           the listener is closed after so many seconds and the server goes on
  exit_while_serving_after_s  the server ends itself with status 1
  abort_after_s       the main process aborts (SIGABRT, a core dump if the limit allows one)
  heap_mb             memory that the main process touches at its start, to make that core big

Misdeeds of one half of a pair (--disaggregation-mode); on the prefill unless the decode is named:
  register_late_s  its ranks register with the bootstrap server so long after the load: /route says 503 until then, and
                   /ready may be 200 already
  no_transfer      it computes and never sends; on a decode: it never asks for any KV
  wrong_tokens     "repeated" (one token for ever) or "other" (fluent, and another prompt's): what was handed over is
                   spoiled; on a decode: spoiled on arrival
  decode_never_answers  of the decode: KV arrives, the counters of the transfer move, no token is ever made
  die_on_bare_generate  a request without a bootstrap room ends the engine instead of being refused; on a decode too
  stale_peer       KV goes to the first decode engine that ever asked, and to no later one; on a decode: it asks where
                   the first prefill engine listened, for ever, though that one was restarted

Misdeeds at the stop:
  ignore_sigterm      SIGTERM does nothing, whatever the phase
  join_children_forever_on_term  SIGTERM makes the server wait for children that nobody told to end
  leave_renamed_children  so many processes, in sessions and with titles of their own, survive the server; each holds
                          1 GiB on the first GPU
  stuck_on            a file that a thread of rank 0 asks for once it is loaded: where no answer comes, the process
                      outlives SIGKILL with its ports and its memory, as one inside a driver call does
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import UnionType
from typing import Any, get_args

PHASES = ("import", "dist", "weights", "pools", "kernels", "graphs", "warmup")

# Keys whose values are words of a fixed list.
WORDS: Mapping[str, tuple[Any, ...]] = {
    "stall_in": PHASES,
    "crash_in": PHASES,
    "oom_in": PHASES,
    "die_in": PHASES,
    "exit": (1, 2, 3),
    "helper_takes_port": ("listening", "bound"),
    "garbage_generation": ("empty", "no_choices", "not_json"),
    "wrong_tokens": ("repeated", "other"),
}


class BadBehaviour(Exception):
    """Every problem of a behaviour file, one line each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """One key each; see the module's docstring."""

    import_s: float = 0.1
    load_s: float = 1.0
    weights_steps: int | None = None
    graphs_steps: int = 36
    bind_late_s: float = 0.0
    warmup_s: float = 1.0
    token_s: float = 0.01
    transfer_s: float = 0.0
    drain_poll_s: float = 5.0
    crash_settle_s: float = 5.0
    orphan_s: float = 300.0
    stall_in: str | None = None
    crash_in: str | None = None
    oom_in: str | None = None
    die_in: str | None = None
    exit: int | None = None
    helper_takes_port: str | None = None
    chatty_lines: int = 0
    dump_to: str | None = None
    live: str | None = None
    generations_to: str | None = None
    health_but_no_generation: bool = False
    generation_works_after_s: float = 0.0
    garbage_generation: str | None = None
    wrong_model_name: str | None = None
    status_401: bool = False
    without_ready: bool = False
    lose_port: float | None = None
    exit_while_serving_after_s: float | None = None
    abort_after_s: float | None = None
    heap_mb: int = 0
    register_late_s: float = 0.0
    no_transfer: bool = False
    wrong_tokens: str | None = None
    decode_never_answers: bool = False
    die_on_bare_generate: bool = False
    stale_peer: bool = False
    ignore_sigterm: bool = False
    join_children_forever_on_term: bool = False
    leave_renamed_children: int = 0
    stuck_on: str | None = None


def find(port: int, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The behaviour file of the server on this HTTP port, or None. A file that is named but missing is returned."""
    if named := environment.get("DSV4CTL_STANDIN_BEHAVIOUR"):
        return Path(named)
    folder = Path("/run/standin")
    return next((path for path in (folder / f"{port}.json", folder / "all.json") if path.exists()), None)


def load(path: Path | None) -> Behaviour:
    """The behaviour in a file; raises BadBehaviour with every problem."""
    if path is None:
        return Behaviour()
    try:
        return parse(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise BadBehaviour(f"cannot read the behaviour file {path}: {error}") from None
    except BadBehaviour as error:
        raise BadBehaviour(f"cannot use the behaviour file {path}:\n{error}") from None


def now(asked: Behaviour) -> Behaviour:
    """What was asked for at the start, and what the file that `live` names says over it, if it is there now."""
    try:
        keys = json.loads(Path(asked.live).read_text(encoding="utf-8")) if asked.live else {}
    except FileNotFoundError:
        keys = {}
    return replace(asked, **keys) if keys else asked


def parse(keys: object) -> Behaviour:
    """A behaviour from a JSON value; raises BadBehaviour with every problem."""
    if not isinstance(keys, dict):
        raise BadBehaviour(f"  a JSON object is expected, not {json.dumps(keys)}")
    kinds = {field.name: field.type for field in fields(Behaviour)}
    problems = [f"  unknown key {key!r}" for key in sorted(keys.keys() - kinds.keys())]
    problems += [problem for key in keys.keys() & kinds.keys() if (problem := _wrong(key, keys[key], kinds[key]))]
    if problems:
        raise BadBehaviour("\n".join([*sorted(problems), f"  known keys: {', '.join(sorted(kinds))}"]))
    return Behaviour(**keys)


def _wrong(key: str, value: object, kind: object) -> str:
    """What is wrong with a value, or ''."""
    allowed = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    fits = type(value) in allowed or (type(value) is int and float in allowed)
    if not fits:
        names = " or ".join("null" if one is type(None) else one.__name__ for one in allowed)
        return f"  {key} must be {names}, not {json.dumps(value)}"
    if value is not None and key in WORDS and value not in WORDS[key]:
        return f"  {key} must be one of {', '.join(map(str, WORDS[key]))}, not {json.dumps(value)}"
    return ""
