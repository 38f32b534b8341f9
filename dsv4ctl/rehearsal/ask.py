"""`python -m dsv4ctl.rehearsal.ask PORT QUESTION`: one chat completion.

A program of its own, for it runs inside the private machine, whose ports nobody outside can reach.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

from dsv4ctl import probe
from dsv4ctl.problems import NotReady

ANSWER_LIMIT_S = 30.0


def chat(port: int, question: str) -> Mapping[str, Any]:
    """Ask the server on this port with the model that it names first; returns the completion.

    Raises NotReady when the server does not give one.
    """
    base = probe.base_url("127.0.0.1", port)
    models = _answered(base, probe.get(f"{base}/v1/models", timeout_s=ANSWER_LIMIT_S))["data"]
    payload = {"model": models[0]["id"], "messages": [{"role": "user", "content": question}], "max_tokens": 24}
    return _answered(base, probe.post(f"{base}/v1/chat/completions", payload, timeout_s=ANSWER_LIMIT_S))


def _answered(base: str, answer: probe.Answer) -> Mapping[str, Any]:
    found = answer.json()
    if answer.status != 200 or not isinstance(found, dict):
        said = answer.error or f"status {answer.status}: {answer.body[:200].decode(errors='replace')}"
        raise NotReady(f"cannot chat with {base}: {said}")
    return found


def main() -> None:
    """Print what the server answers, as JSON."""
    try:
        answer = chat(int(sys.argv[1]), sys.argv[2])
    except NotReady as problem:
        sys.exit(str(problem))
    sys.stdout.write(json.dumps(answer, indent=2) + "\n")


if __name__ == "__main__":
    main()
