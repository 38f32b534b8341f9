"""The table of troubles, second part: what the engine was told, and what its processes do to each other.

Lines of SGLang 0.5.3 to 0.5.23, and of torch, NCCL and Python below it. The first row that fits a line counts, so the
more telling rows of a kind stand above the more general ones.
"""

from dsv4ctl.engine.trouble_kinds import Kind, Severity, rows

WARNING, CONSEQUENCE, SUSPECT, CAUSE = Severity

_ARGS = "correct engine.args; the engine's python with -m sglang.launch_server --help lists what it knows"
_LOGS = "dsv4ctl logs shows what it wrote before"
_RANKS = "dsv4ctl logs shows which rank failed first; dmesg | grep -i xid shows whether a GPU did"
_MODEL = "engine.model names the folder of the whole checkpoint; dsv4ctl init --print shows those on this host"

ROWS = rows(
    (
        # Ranks that wait for each other, hang or die.
        (
            *(Kind.NCCL, SUSPECT, "collective operation timeout"),
            r"Watchdog caught collective operation timeout",
            "a rank waited in vain for the others",
            _RANKS,
        ),
        (
            *(Kind.NCCL, SUSPECT, "nccl"),
            r"NCCL error|ncclUnhandledCudaError|ncclSystemError|ncclInternalError|ncclRemoteError",
            "the ranks lost each other",
            _RANKS,
        ),
        (
            *(Kind.NCCL, CONSEQUENCE, "error"),
            r"\bDist(?:Network|Store|Backend)?Error: ",
            "the ranks lost each other",
            _RANKS,
        ),
        (
            *(Kind.HANG, WARNING, "self.soft=true"),
            r"watchdog timeout \(self\.watchdog_timeout=(?P<limit>[\d.]+)",
            "one step took longer than {limit} s",
            _RANKS,
        ),
        (
            *(Kind.HANG, CAUSE, "watchdog timeout (self.watchdog_timeout="),
            r"atchdog timeout \(self\.watchdog_timeout=(?P<limit>[\d.]+)",
            "the engine hung: one step took longer than {limit} s",
            _RANKS + "; --watchdog-timeout in engine.args raises the limit",
        ),
        (
            *(Kind.HOST_MEMORY, SUSPECT, "died during initialization"),
            r"Rank (?P<rank>\d+) scheduler died during initialization \(exit code: -9\)",
            "rank {rank} was killed during the load; mostly that is the kernel, out of memory",
            "journalctl -k -g 'out of memory' tells; free shows the host's memory",
        ),
        (
            *(Kind.HOST_MEMORY, SUSPECT, "crashed with exit code -9"),
            r"Subprocess (?P<who>\S+) \(pid=(?P<pid>\d+)\) crashed with exit code -9\b",
            "{who} (pid {pid}) was killed; unless somebody did that, the kernel did, out of memory",
            "journalctl -k -g 'out of memory' tells; free shows the host's memory",
        ),
        (
            *(Kind.CRASH, CONSEQUENCE, "died during initialization"),
            r"Rank (?P<rank>\d+) scheduler died during initialization \(exit code: (?P<code>[^)]*)\)",
            "rank {rank} died during the load with exit code {code}",
            _LOGS,
        ),
        (
            *(Kind.CRASH, CONSEQUENCE, "crashed with exit code"),
            r"Subprocess (?P<who>\S+) \(pid=(?P<pid>\d+)\) crashed with exit code (?P<code>-?\d+)",
            "{who} (pid {pid}) died with exit code {code}",
            _LOGS,
        ),
        (
            *(Kind.CRASH, CONSEQUENCE, "hit an exception: "),
            r"^(?P<who>\w+) hit an exception: ",
            "the engine's {who} failed",
            _LOGS,
        ),
        (
            *(Kind.CRASH_PATH, CONSEQUENCE, "sigquit"),
            r"Received sigquit from a child process|^SIGQUIT received\.",
            "a process of the engine failed and it ends itself",
            _LOGS,
        ),
        (
            *(Kind.CRASH_PATH, CONSEQUENCE, "initialization failed. please see"),
            r"Initialization failed\. Please see the error messages above",
            "a rank failed during the load",
            _LOGS,
        ),
        (
            *(Kind.WARMUP, SUSPECT, "initialization failed. warmup error"),
            r"Initialization failed\. warmup error",
            "the model is loaded, but the engine's own first request to it failed",
            _LOGS,
        ),
        (
            *(Kind.WARMUP, WARNING, "disaggregation warmup failed"),
            r"Disaggregation warmup failed \(mode=(?P<mode>\w+)\), status codes: (?P<codes>.*)",
            "the {mode}'s own first request failed with {codes}, although it says that it is ready",
            _LOGS,
        ),
        # Stopping, and a server that is not well.
        (
            *(Kind.STOP, WARNING, "after shutdownreq, killing them"),
            r"Schedulers still alive (?P<seconds>\d+)s after ShutdownReq",
            "ranks did not end within {seconds} s and were killed, so that GPU memory may come back late",
            "nvidia-smi shows when it is back",
        ),
        (
            *(Kind.STOP, WARNING, "force exiting"),
            r"Signal SIGTERM received while (?P<why>health check failed|force shutdown flag set)",
            "the engine stopped without waiting for its requests: {why}",
            _LOGS,
        ),
        (
            *(Kind.HEALTH, WARNING, "health check failed. server couldn't get a response"),
            r"from detokenizer for last (?P<seconds>\d+) seconds",
            "no rank answered for {seconds} s",
            "a very long prefill can do that; otherwise: " + _RANKS,
        ),
        (
            *(Kind.PEER, WARNING, "lost connection with prefill"),
            r"Lost connection with prefill instance \(bootstrap_addr: (?P<peer>[^)]+)\)",
            "the decode lost its prefill {peer}",
            "dsv4ctl status shows whether it runs",
        ),
        (
            *(Kind.PEER, WARNING, "in kvpoll."),
            r"timed out after (?P<seconds>[\d.]+)s in KVPoll\.(?P<state>\w+)",
            "a request waited {seconds} s for the other side ({state})",
            "dsv4ctl status shows whether it runs",
        ),
        # What it was told, and what it lacks.
        (
            *(Kind.BAD_ARGUMENT, CAUSE, "error: unrecognized arguments: "),
            r"error: unrecognized arguments: (?P<what>.+)",
            "the engine does not know {what}",
            _ARGS,
        ),
        (
            *(Kind.BAD_ARGUMENT, CAUSE, "error: ambiguous option: "),
            r"error: ambiguous option: (?P<what>.+)",
            "the engine does not know which option is meant: {what}",
            _ARGS,
        ),
        (
            *(Kind.BAD_ARGUMENT, CAUSE, "error: "),
            r"error: argument (?P<what>\S.*?): (?P<why>.+)",
            "the engine does not take {what}: {why}",
            _ARGS,
        ),
        (
            *(Kind.BAD_ARGUMENT, CAUSE, "error: the following arguments are required"),
            r"arguments are required: (?P<what>.+)",
            "the engine was not given {what}",
            _ARGS,
        ),
        (
            *(Kind.MODULE_MISSING, CAUSE, "error while finding module specification"),
            r"\(ModuleNotFoundError: No module named '(?P<what>[^']+)'\)",
            "the engine's python has no {what}",
            "engine.python names the interpreter of the environment that SGLang is installed in",
        ),
        (
            *(Kind.MODULE_MISSING, SUSPECT, "error: "),
            r"^(?:ModuleNotFoundError|ImportError): (?P<why>.+)",
            "the engine's environment is not complete: {why}",
            "install it into the environment of engine.python",
        ),
        (
            *(Kind.CONTEXT_OVER_MODEL, CAUSE, "is greater than the derived context_length"),
            r"^ValueError: .*context_length \((?P<wanted>\d+)\) is greater than the derived .*\((?P<own>\d+)\)",
            "a context of {wanted} is more than the model's own {own}",
            "lower memory.context_length to {own}",
        ),
        (
            *(Kind.CONTEXT_OVER_MODEL, WARNING, "is greater than the derived context_length"),
            r"context_length \((?P<wanted>\d+)\) is greater than the derived context_length \((?P<own>\d+)\)",
            "a context of {wanted} is more than the model's own {own}",
            "lower memory.context_length to {own}",
        ),
        (
            *(Kind.MODEL_MISSING, CAUSE, "error: "),
            r"^(?:\w+\.)*(?:OSError|HFValidationError|RuntimeError): "
            r"(?P<why>Repo id must|We couldn't connect to|Can't load|Incorrect path_or_model_id|"
            r".* is not a local folder|.* does not appear to have a file named|Cannot find any model weights).*",
            "the model cannot be found",
            _MODEL,
        ),
        (
            *(Kind.MODEL_MISSING, CAUSE, "error: "),
            r"(?:OfflineModeIsEnabled|LocalEntryNotFoundError|RepositoryNotFoundError|GatedRepoError): ",
            "the model is not on this host and cannot be fetched",
            _MODEL,
        ),
        (
            *(Kind.MODEL_DAMAGED, CAUSE, "safetensor"),
            r"SafetensorError: (?P<why>.+)",
            "a weight file is damaged or not complete: {why}",
            "fetch the checkpoint again, or compare its files with their checksums",
        ),
        # Any other end of a Python traceback. Those of a pipe or a peer tell only that the other side is gone.
        (
            *(Kind.EXCEPTION, CONSEQUENCE, "error"),
            r"^(?:BrokenPipeError|ConnectionResetError|ConnectionRefusedError|EOFError|asyncio\.\S*CancelledError)\b",
            "a process of the engine is gone for another one",
            _LOGS,
        ),
        (
            *(Kind.EXCEPTION, SUSPECT, ""),
            r"^(?P<what>(?:[A-Za-z_]\w*\.)*(?:[A-Za-z_]\w*Error|\w*Exception))(?:: (?P<why>.*))?$",
            "the engine failed with {what}: {why}",
            _LOGS,
        ),
    )
)
