"""The load of one rank: phases in their order with the real engine's log lines, spread over `load_s`."""

import socket
import time
from dataclasses import dataclass, field
from pathlib import Path

from . import figures, ledger, misdeeds, words
from .settings import Settings

# What a CUDA context takes before the first byte of weights.
CONTEXT_GIB = 0.5
# Parts of load_s.
PARTS = {"dist": 0.05, "weights": 0.55, "pools": 0.05, "kernels": 0.10, "graphs": 0.25}


@dataclass(slots=True, kw_only=True)
class Load:
    """A rank on its way to be ready. `listeners` and `peers` are kept open for its whole life."""

    settings: Settings
    rank: int
    gpu: Path | None
    figures: figures.Figures
    listeners: list[socket.socket] = field(default_factory=list)
    peers: list[socket.socket] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def prefix(self) -> str:
        """` TP0`, or '' for a single rank."""
        return f" TP{self.rank}" if self.settings.tp > 1 else ""

    def say(self, text: str) -> None:
        """A log line of this rank."""
        words.say(text, self.prefix)

    def hold(self, gib: float) -> None:
        """Say what we hold of the GPU besides its context."""
        ledger.hold(self.gpu, CONTEXT_GIB + gib)

    def spend(self, phase: str, part: float = 1.0) -> None:
        """Let a part of a phase's time pass."""
        time.sleep(PARTS[phase] * self.settings.behaviour.load_s * part)

    def halfway(self, phase: str) -> None:
        """Go wrong here, if that was asked for."""
        misdeeds.halfway(self.settings, phase, self.rank)


def load(settings: Settings, rank: int) -> Load:
    """Go through every phase of a rank; raises what ends it."""
    gpu = ledger.gpu_of(rank) if settings.on_gpu else None
    loading = Load(settings=settings, rank=rank, gpu=gpu, figures=figures.work_out(settings))
    for name, phase in (
        ("dist", dist),
        ("weights", weights),
        ("pools", pools),
        ("kernels", kernels),
        ("graphs", graphs),
    ):
        before = time.monotonic()
        phase(loading)
        loading.seconds[name] = time.monotonic() - before
    if not rank:
        capacity(loading)
    return loading


def dist(loading: Load) -> None:
    """Ranks meet: rank 0 listens on all interfaces at the rendezvous port, the others connect to it."""
    loading.say("Init parallel begin.")
    loading.hold(0.0)
    loading.spend("dist", 0.5)
    loading.halfway("dist")
    if loading.rank:
        loading.peers.append(_join(loading.settings["nccl_port"]))
    else:
        store = _rendezvous(loading.settings["nccl_port"])
        loading.listeners.append(store)
        loading.peers += [store.accept()[0] for _ in range(loading.settings.tp - 1)]
    for _ in range(4):
        loading.listeners.append(socket.create_server(("127.0.0.1", 0)))
    loading.spend("dist", 0.5)
    loading.say(f"Init parallel ends. elapsed={time.monotonic() - loading.began:.2f} s")
    loading.say("Memory baseline taken. mem usage=0.00 GB" if not loading.settings.on_gpu else _baseline())


def _baseline() -> str:
    return f"Memory baseline taken. mem usage={figures.GPU_GIB - figures.FREE_GIB:.2f} GB"


def _rendezvous(port: int) -> socket.socket:
    try:
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    except OSError as error:
        message = f"The server socket has failed to listen on any local network address. port: {port}"
        if error.errno == 98:
            message += ", useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"
        raise misdeeds.SchedulerFailed(f"torch.distributed.DistNetworkError: {message}") from None


def _join(port: int) -> socket.socket:
    end = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)


def weights(loading: Load) -> None:
    """Shards one by one; rank 0 draws the bar."""
    on_gpu = loading.settings.on_gpu
    steps = loading.settings.behaviour.weights_steps or loading.settings.model.shards
    figure, began = loading.figures, time.monotonic()
    loading.say(f"Load weight begin. avail mem={figures.FREE_GIB:.2f} GB")
    real = loading.settings["load_format"] != "dummy"
    for done in range(steps + 1):
        if done == steps // 2:
            loading.halfway("weights")
            if figure.weights_gib > figures.FREE_GIB:
                raise misdeeds.SchedulerFailed(misdeeds.OUT_OF_MEMORY)
        if real and not loading.rank:
            _weights_bar(done, steps, time.monotonic() - began)
        loading.hold(figure.weights_gib * done / steps)
        loading.spend("weights", 1 / (steps + 1))
    words.write(2, "\n" if real and not loading.rank else "")
    loading.say(
        f"Load weight end. elapsed={time.monotonic() - began:.2f} s, type={loading.settings.model.architecture}, "
        f"{'quant=fp8, ' if on_gpu else ''}avail mem={figure.free_after_weights:.2f} GB, "
        f"mem usage={figure.weights_gib:.2f} GB."
    )


def _weights_bar(done: int, total: int, elapsed: float) -> None:
    name = "Multi-thread loading shards"
    words.write(2, f"\r{name}: {100 * done // total:3d}% Completed | {done}/{total} {_pace(done, total, elapsed)}")


def _pace(done: int, total: int, elapsed: float) -> str:
    """tqdm's tail: `[00:05<00:07,  6.10it/s]`."""
    rate = done / elapsed if done and elapsed else 0.0
    left = _clock((total - done) / rate) if rate else "?"
    return f"[{_clock(elapsed)}<{left}, {f'{rate:5.2f}' if rate else '?'}it/s]"


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"


def pools(loading: Load) -> None:
    """The KV pools are allocated."""
    figure, tokens = loading.figures, loading.figures.tokens
    loading.halfway("pools")
    if tokens <= 0:
        words_of_it = figures.no_room(loading.settings["mem_fraction_static"], figure.weights_gib)
        raise misdeeds.SchedulerFailed(words_of_it)
    if loading.settings.model.is_deepseek_v4 and loading.settings.on_gpu:
        _deepseek_pools(loading)
    else:
        loading.say(
            f"KV Cache is allocated. dtype: torch.bfloat16, #tokens: {tokens}, K size: 0.00 GB, V size: 0.00 GB"
        )
    loading.hold(figure.weights_gib + figure.pool_gib)
    loading.spend("pools")
    loading.say(f"Memory pool end. avail mem={figure.free_after_pools:.2f} GB")


def _deepseek_pools(loading: Load) -> None:
    tokens, running = loading.figures.tokens, loading.figures.running
    window = int(tokens * (loading.settings["swa_full_tokens_ratio"] or 0.1)) // 256 * 256
    loading.say(
        "DSV4 memory calculation: unified=False, unified_fp8=False, dspark_draft_bf16=False, "
        f"bytes_per_full_token=7086.75, available_bytes={loading.figures.pool_gib:.2f} GB, full_token={tokens}"
    )
    loading.say(
        f"DSV4 pool sizes: full={tokens}, swa={window}, c4={tokens // 4}, c128={tokens // 128}, "
        f"c4_state={window // 32}, c128_state={(running + 2) * 128}"
    )
    loading.say(
        f"Initialize DeepSeekV4TokenToKVPool with max_num_reqs={running} swa_size={window} c4_size={tokens // 4} "
        f"c4_logical_size={tokens} c128_size={tokens // 128} unified=False unified_fp8=False"
    )


def kernels(loading: Load) -> None:
    """Kernels are compiled and tuned; only on GPUs."""
    loading.halfway("kernels")
    if not loading.settings.on_gpu:
        return
    if not loading.rank:
        loading.say(
            "Entering DeepGEMM JIT Pre-Compile session. It may take a long time (typically 10-20 mins) "
            "if you have not run `sglang.compile_deep_gemm`."
        )
    loading.say("Try DeepGEMM JIT Compiling for <GEMM_NT_F8F8BF16> N=4096, K=7168, num_groups=1 with all Ms.")
    loading.say("Running FlashInfer autotune with cache: /root/.cache/sglang/flashinfer_autotune.json")
    loading.spend("kernels")
    loading.say("FlashInfer autotune completed.")


def graphs(loading: Load) -> None:
    """CUDA graphs of the decode step are captured; rank 0 draws the bar."""
    figure, began = loading.figures, time.monotonic()
    if not figure.graphs_gib:
        loading.halfway("graphs")
        loading.say("Disable prefill CUDA graph because cuda_graph_config resolved prefill.backend='disabled'.")
        return
    loading.say(
        f"Capture target decode CUDA graph begin. backend=full, num_tokens_per_req=1, "
        f"avail mem={figure.free_after_pools:.2f} GB"
    )
    sizes = list(range(8 * loading.settings.behaviour.graphs_steps, 0, -8))
    for done, size in enumerate([*sizes, sizes[-1]]):
        if done == len(sizes) // 2:
            loading.halfway("graphs")
        if not loading.rank:
            _graphs_bar(done, len(sizes), size, time.monotonic() - began)
        loading.spend("graphs", 1 / (len(sizes) + 1))
    words.write(2, "" if loading.rank else "\n")
    loading.hold(figure.weights_gib + figure.pool_gib + figure.graphs_gib)
    loading.say(
        f"Capture target decode CUDA graph end. bs={sizes[::-1]}, elapsed={time.monotonic() - began:.2f} s, "
        f"mem usage={figure.graphs_gib:.2f} GB, avail mem={figure.free_after_graphs:.2f} GB."
    )


def _graphs_bar(done: int, total: int, size: int, elapsed: float) -> None:
    percent, bar = 100 * done // total, ("█" * (10 * done // total)).ljust(10)
    name = f"Capturing batches (bs={size} avail_mem=7.94 GB)"
    words.write(2, f"\r{name}: {percent:3d}%|{bar}| {done}/{total} {_pace(done, total, elapsed)}")


def capacity(loading: Load) -> None:
    """Rank 0 says what the server can hold."""
    misdeeds.chatter(loading.settings, loading.prefix)
    figure, settings = loading.figures, loading.settings
    memory = "available_gpu_mem" if settings.on_gpu else "available_cpu_mem"
    loading.say(
        f"max_total_num_tokens={figure.tokens}, chunked_prefill_size={settings['chunked_prefill_size']}, "
        f"max_prefill_tokens={settings['max_prefill_tokens']}, max_running_requests={figure.running}, "
        f"context_len={figure.context}, {memory}={figure.free_after_graphs:.2f} GB"
    )
