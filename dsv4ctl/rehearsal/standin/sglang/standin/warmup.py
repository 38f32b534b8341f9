"""The warm-up thread: the server asks itself, by its own URL, for a first generation and then says that it is ready."""

import http.client
import json
import os
import time

from . import tree, words
from .engine import Engine, Status
from .messages import FAKE

TRIES = 120
# Tells the warm-up from users, who may be treated badly on purpose.
MARK = "x-standin-warmup"


def run(engine: Engine) -> None:
    """Body of the thread. On a port of another server it warms up that one, and says ready all the same."""
    alone = engine.settings.mode == "null"
    if engine.settings["skip_server_warmup"]:
        engine.status = Status.UP
    elif problem := _find_server(engine) or (_first_generation(engine) if alone else _first_of_a_pair(engine)):
        words.say(f"Initialization failed. warmup error: {problem}")
        tree.kill_all()
    elif alone:
        engine.status = Status.UP
    _ask(engine, "/freeze_gc", {})
    words.say("The server is fired up and ready to roll!")
    engine.ready_at = time.monotonic()
    # The main loop sleeps until something is due and does not know of this yet.
    os.write(engine.wake_writer, b"\0")


def _find_server(engine: Engine) -> str:
    """Wait until the URL answers /model_info; the last problem when it never does."""
    problem = ""
    for number in range(TRIES):
        time.sleep(1.0 if number else engine.settings.behaviour.warmup_s)
        status, problem = _ask(engine, "/model_info", None)
        if status == 200:
            return ""
    return problem


def _first_generation(engine: Engine) -> str:
    """One generation of 8 tokens; '' or what went wrong."""
    order = {"text": "The capital city of France is", "sampling_params": {"temperature": 0, "max_new_tokens": 8}}
    limit_s = float(os.environ.get("SGLANG_WARMUP_TIMEOUT", "-1"))
    status, problem = _ask(engine, "/generate", order, limit_s if limit_s > 0 else 600)
    return "" if status == 200 else problem


def _first_of_a_pair(engine: Engine) -> str:
    """One request that crosses to nobody; a status other than 200 is logged, and the ready line comes all the same."""
    words.say("Start of pd disaggregation warmup ...")
    order = {
        "input_ids": [10, 11, 12, 13],
        "sampling_params": {"temperature": 0.0, "max_new_tokens": 8, "ignore_eos": True},
        "bootstrap_host": FAKE,
        "bootstrap_room": 0,
    }
    limit_s = float(os.environ.get("SGLANG_WARMUP_TIMEOUT", "-1"))
    status, problem = _ask(engine, "/generate", order, limit_s if limit_s > 0 else 1800)
    if not status:
        return problem
    if status == 200:
        words.say("Disaggregation warmup requests completed for all 1 DP ranks")
        words.say("End of disaggregation warmup")
    else:
        words.say(f"Disaggregation warmup failed (mode={engine.settings.mode}), status codes: [{status}]")
    engine.status = Status.UP if status == 200 else Status.UNHEALTHY
    return ""


def _ask(engine: Engine, path: str, body: object, limit_s: float = 5) -> tuple[int, str]:
    """Status and problem of one request to our own URL: a GET, or a POST where there is a body."""
    headers = {MARK: engine.settings.instance, "content-type": "application/json"}
    if key := engine.settings["api_key"]:
        headers["authorization"] = f"Bearer {key}"
    connection = http.client.HTTPConnection(*engine.settings.url, timeout=limit_s)
    try:
        method, text = ("GET", None) if body is None else ("POST", json.dumps(body))
        connection.request(method, path, text, headers)
        answer = connection.getresponse()
        said = answer.read().decode(errors="replace")
        return answer.status, f"AssertionError: res=<Response [{answer.status}]>, res.text={said!r}"
    except (OSError, http.client.HTTPException) as error:
        return 0, f"{type(error).__name__}: {error}"
    finally:
        connection.close()
