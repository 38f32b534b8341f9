"""A small engine for the supervisor's tests: a real process with a real server, and a behaviour given as JSON.

Run as `python script_engine.py JSON`. It stands in for nothing of SGLang but what the supervisor looks at.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

DEFAULTS: dict[str, Any] = {
    "host": "127.0.0.1",
    "port": 0,
    "model": "dsv4",
    "context": 4096,
    "key": "",
    "log": [],  # lines before the port is bound; [seconds, text] waits first
    "exit": None,  # exit status instead of binding the port
    "kill": None,  # signal to itself instead of binding the port
    "hang": False,  # never binds
    "has_ready": True,
    "warm_s": 0.0,  # 503 until then
    "readiness": 404,  # a router's
    "route": 404,  # a prefill's, here on the same port
    "generates_after_s": 0.0,
    "generation": 200,  # status; 0 hangs
    "requests": 0,  # carried until aborted
    "requests_file": "",  # while that file is there, one more
    "ignore_term": False,
    "orphan": "",  # "setsid": a child in a session of its own; "plain": one that outlives its parent
    "dies_after_s": None,
    "death": 0,  # by this signal, or with the exit status of its negative
    "health_file": "",  # while that file is there, /health says 503, and /health_generate as well
    "hung_file": "",  # while that file is there, /health_generate alone says 503
    "has_health_generate": True,
    "asked_file": "",  # gets a line for each question about its health
    "unbind_file": "",  # once that file is there, the port is let go
}


class Handler(BaseHTTPRequestHandler):
    """The endpoints that a supervisor asks."""

    it: ClassVar[dict[str, Any]] = {}
    began: ClassVar[float] = 0.0

    def do_GET(self) -> None:
        """Say how it is."""
        it = Handler.it
        warm = time.monotonic() - Handler.began >= it["warm_s"]
        path = self.path.partition("?")[0]
        if path == "/ready":
            self.answer(404 if not it["has_ready"] else 200 if warm and not it.get("draining") else 503)
        elif path in ("/readiness", "/route"):
            self.answer(it[path[1:]] if warm else 503, {"reason": "insufficient healthy workers"})
        elif path == "/health" or (path == "/health_generate" and it["has_health_generate"]):
            if it["asked_file"]:
                with Path(it["asked_file"]).open("a") as asked:
                    asked.write(f"{path}\n")
            files = [it["health_file"], it["hung_file"] if path == "/health_generate" else ""]
            sick = it.get("draining") or any(Path(file).exists() for file in files if file)
            time.sleep(0.2)
            self.answer(503 if sick or not warm else 200)
        elif it["key"] and self.headers.get("Authorization") != f"Bearer {it['key']}":
            self.answer(401)
        elif path == "/v1/models":
            self.answer(200, {"data": [{"id": it["model"], "max_model_len": it["context"]}]})
        elif path == "/v1/loads":
            carried = it["requests"] + bool(it["requests_file"] and Path(it["requests_file"]).exists())
            self.answer(200, {"loads": [{"num_running_reqs": carried, "num_waiting_reqs": 0}]})
        else:
            self.answer(404)

    def do_POST(self) -> None:
        """Generate, or abort."""
        it = Handler.it
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if it["key"] and self.headers.get("Authorization") != f"Bearer {it['key']}":
            self.answer(401)
        elif self.path == "/abort_request":
            say("aborted all requests")
            it["requests"] = 0
            self.answer(200)
        elif it["generation"] == 0 or time.monotonic() - Handler.began < it["generates_after_s"]:
            time.sleep(0.3 if it["generation"] else 600)
            self.answer(503)
        else:
            self.answer(it["generation"], {"choices": [{"text": " Paris"}]})

    def answer(self, status: int, body: object = None) -> None:
        """Answer in JSON."""
        text = json.dumps(body if body is not None else {}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:  # type: ignore[explicit-override]
        """Say nothing of requests."""


def say(line: str) -> None:
    """Log a line."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def leave_child(kind: str) -> None:
    """A child that knows nothing of its parent's end."""
    sleeper = "import time; time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-c", sleeper], start_new_session=kind == "setsid")
    say(f"left a child, pid {child.pid}")


def speak(lines: list[Any]) -> None:
    """Print the log."""
    for line in lines:
        wait_s, text = line if isinstance(line, list) else (0, line)
        time.sleep(wait_s)
        sys.stderr.write(text if text.endswith("\r") else text + "\n")
        sys.stderr.flush()


def stop(server: ThreadingHTTPServer) -> None:
    """Drain as SGLang does: until no request is left, however long that takes."""
    Handler.it["draining"] = True
    say("SIGTERM received. Draining requests")
    while Handler.it["requests"]:
        time.sleep(0.05)
    server.shutdown()


def main() -> int:
    """Load, bind, serve, drain."""
    it = Handler.it = {**DEFAULTS, **json.loads(sys.argv[1])}
    if it["ignore_term"]:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if it["orphan"]:
        leave_child(it["orphan"])
    say(f"args: {json.dumps({name: value for name, value in it.items() if name != 'log'})}")
    speak(it["log"])
    if it["exit"] is not None:
        return int(it["exit"])
    if it["kill"] is not None:
        os.kill(os.getpid(), it["kill"])
    if it["hang"]:
        time.sleep(600)
    ThreadingHTTPServer.allow_reuse_address = True
    ThreadingHTTPServer.daemon_threads = True
    try:
        server = ThreadingHTTPServer((it["host"], it["port"]), Handler)
    except OSError as error:
        say(f"ERROR: [Errno {error.errno}] error while attempting to bind")
        return 3
    Handler.began = time.monotonic()
    if not it["ignore_term"]:
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=stop, args=(server,)).start())
    say(f"Uvicorn running on http://{it['host']}:{it['port']} (Press CTRL+C to quit)")
    if not it["has_ready"]:
        say("The server is fired up and ready to roll!")
    if it["dies_after_s"] is not None:
        threading.Timer(it["dies_after_s"], die, args=(it["death"],)).start()
    if it["unbind_file"]:
        threading.Thread(target=unbind, args=(server, it["unbind_file"]), daemon=True).start()
    server.serve_forever(poll_interval=0.05)
    return 0


def die(how: int) -> None:
    """End now."""
    if how > 0:
        os.kill(os.getpid(), how)
        time.sleep(10)
    os._exit(-how)


def unbind(server: ThreadingHTTPServer, file: str) -> None:
    """Let the port go and live on."""
    while not Path(file).exists():
        time.sleep(0.05)
    server.socket.close()


if __name__ == "__main__":
    sys.exit(main())
