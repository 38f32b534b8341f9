"""Runs inside the machine: asks the router again and again, and writes down what became of each request.

    python traffic.py PORT CLIENTS FILE

One JSON object a line: when it `began` and `ended` (monotonic seconds), whether it was a `stream`, and what became of
it: "whole", "cut" (some of the answer came) or "refused" (nothing did), with `why`. It ends when its input is closed.
"""

import http.client
import json
import random
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

LIMIT_S = 10.0
PAUSE_S = 0.02
stopping = threading.Event()
writing = threading.Lock()


def request(port: int, tokens: int, *, stream: bool) -> tuple[str, str]:
    """One request: what became of it, and why."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    body = {"model": "DeepSeek-V4-Flash", "prompt": f"n{random.random()}", "max_tokens": tokens, "stream": stream}  # noqa: S311 -- no secret
    came = 0
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            return "refused", f"status {answer.status}: {answer.read(200)!r}"
        if not stream:
            used = json.loads(answer.read())["usage"]["completion_tokens"]
            return ("whole", "") if used == tokens else ("cut", f"{used} of {tokens} tokens")
        for event in events(answer):
            if "error" in event:
                return ("cut" if came else "refused"), json.dumps(event)[:300]
            came += 1
    except (OSError, http.client.HTTPException, ValueError) as error:
        return ("cut" if came else "refused"), repr(error)
    else:
        return ("whole", "") if came == tokens else ("cut", f"{came} of {tokens} tokens")
    finally:
        connection.close()


def events(answer: http.client.HTTPResponse) -> Iterator[dict[str, object]]:
    """The events of a stream; raises ValueError where it ends without its last word."""
    for line in answer:
        if line.startswith(b"data: [DONE]"):
            return
        if line.startswith(b"data: "):
            yield json.loads(line[6:])
    raise ValueError("the stream ended before its end")


def client(port: int, file: Path, number: int) -> None:
    """One client that never has enough."""
    draw = random.Random(number)  # noqa: S311 -- no secret
    while not stopping.is_set():
        stream, tokens = draw.random() < 0.5, draw.randint(2, 40)
        began = time.monotonic()
        became, why = request(port, tokens, stream=stream)
        line = {"began": began, "ended": time.monotonic(), "stream": stream, "became": became, "why": why}
        with writing, file.open("a") as log:
            log.write(json.dumps(line) + "\n")
        stopping.wait(PAUSE_S if became == "whole" else 5 * PAUSE_S)


def main() -> None:
    """Ask until the input is closed."""
    port, clients, file = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    threads = [threading.Thread(target=client, args=(port, file, number)) for number in range(clients)]
    for thread in threads:
        thread.start()
    print("up", flush=True)  # noqa: T201 -- whoever started it waits for it
    sys.stdin.read()
    stopping.set()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
