"""A stand-in for SGLang 0.5.23, for rehearsals and tests on machines without GPUs.

This folder on an interpreter's path makes `python -m sglang.launch_server …` start it and
`importlib.metadata.version("sglang")` answer; `rehearsal.environment.install` makes an environment of it. It behaves as
the real engine where a manager meets it: process tree with the same titles, workers that wipe their environment and
command line, phases and log lines, HTTP port bound only after the load, endpoints with their status codes in each
phase, drain, crash path, memory held per GPU, and what is left behind. tests/contract holds it to the real one.

What it shall do slowly or wrong stands in a behaviour file; its keys are explained in `sglang/standin/behaviour.py`.

With --disaggregation-mode it is one half of a pair: a prefill's bootstrap server and ranks that register with it,
requests that cross by their bootstrap room, heartbeats. What crosses is a seed that all tokens follow from, so a decode
says what a server that serves alone would say only when the KV of that very request has reached it.

It differs from the real engine on purpose in three points: an orphaned scheduler never signals a process that is not
its own server (the real one sends SIGQUIT to whoever adopted it, pid 1 as a rule); what it leaves behind ends by itself
after `orphan_s`; and a decode whose prefill was restarted finds it again even before heartbeats have failed, for it
restarts faster than any real engine.
"""
