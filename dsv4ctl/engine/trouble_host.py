"""The table of troubles, first part: what the host has too little of, or has not at all.

Lines of SGLang 0.5.3 to 0.5.23, and of torch, NCCL and Python below it. The first row that fits a line counts, so the
more telling rows of a kind stand above the more general ones.
"""

from dsv4ctl.engine.trouble_kinds import Kind, Severity, rows

WARNING, CONSEQUENCE, SUSPECT, CAUSE = Severity

_LESS = "lower memory.mem_fraction_static, memory.cuda_graph_max_bs_decode or memory.chunked_prefill_size"
_DRIVER = "nvidia-smi shows the driver: it must fit the CUDA of the engine's torch, and be loaded anew after an update"
_XID = "dmesg | grep -i xid, and nvidia-smi -q -d ECC, show whether it is the GPU or a kernel of the engine"
_LISTENS = "ss -ltnp 'sport = :{port}' shows who listens"
_FOREIGN = "nvidia-smi shows who else holds memory on these GPUs; end that, or take others with --gpus"

ROWS = rows(
    (
        # What the GPUs and their memory are short of.
        (
            *(Kind.NO_KV_ROOM, CAUSE, "leave no gpu memory for the kv cache"),
            r"under --mem-fraction-static=(?P<now>\S+?)\. Raise --mem-fraction-static above (?P<need>\d[\d.]*\d)",
            "the weights leave no GPU memory for the KV cache at a memory fraction of {now}",
            "set memory.mem_fraction_static above {need}, or spread the model over more GPUs",
        ),
        (
            *(Kind.NO_KV_ROOM, CAUSE, "not enough memory. please try to increase"),
            r"Not enough memory\. Please try to increase --mem-fraction-static",
            "there is no GPU memory left for the KV cache",
            "raise memory.mem_fraction_static or lower memory.max_running_requests. " + _FOREIGN,
        ),
        (
            *(Kind.CONTEXT_OVER_POOL, WARNING, "fewer than --context-length"),
            r"KV pool holds (?P<pool>\d+) tokens, fewer than --context-length (?P<wanted>\d+)",
            "the KV pool holds {pool} tokens, so that no request can use the whole context of {wanted}",
            "lower memory.context_length to {pool}, or raise memory.mem_fraction_static",
        ),
        (
            *(Kind.FEWER_SLOTS, WARNING, "max_running_requests was reduced"),
            r"max_running_requests was reduced from the requested (?P<wanted>\d+) to (?P<got>\d+)",
            "the KV pool has room for {got} requests at a time, not for {wanted}",
            "lower memory.max_running_requests to {got}, or raise memory.mem_fraction_static",
        ),
        (
            *(Kind.GPU_SHARED, CAUSE, "memory capacity is unbalanced"),
            r"^(?:RuntimeError|ValueError): The memory capacity is unbalanced",
            "the GPUs have unequal free memory before the load: something else uses some of them",
            _FOREIGN,
        ),
        (
            *(Kind.GPU_SHARED, WARNING, "memory capacity is unbalanced"),
            r"The memory capacity is unbalanced",
            "the GPUs have unequal free memory before the load: something else uses some of them",
            _FOREIGN,
        ),
        (
            *(Kind.OUT_OF_MEMORY, CAUSE, "out of memory"),
            r"CUDA out of memory|CUDA error: out of memory|Cuda failure \d+ 'out of memory'|\[CUDA\]: out of memory",
            "a GPU has no memory left",
            _LESS + ". " + _FOREIGN,
        ),
        (
            *(Kind.OUT_OF_MEMORY, CAUSE, "out of memory"),
            r"(?:Prefill|Decode) out of memory\. Try to lower your batch size|alloc_req_slots runs out of memory",
            "the KV pool has no room for the running requests",
            "lower memory.max_running_requests",
        ),
        (
            *(Kind.GRAPHS, CAUSE, "graph failed"),
            r"(?i)Capture .*graph failed: (?P<why>.+)",
            "capturing CUDA graphs failed: {why}",
            _LESS,
        ),
        (
            *(Kind.POOL_FULL, WARNING, "kv cache pool is full"),
            r"KV cache pool is full",
            "the KV pool is full; running requests are put back and computed again",
            "lower memory.max_running_requests, or make the pool larger with memory.mem_fraction_static",
        ),
        # The GPUs and what is installed for them.
        (
            *(Kind.DRIVER, CAUSE, "system not yet initialized"),
            r"system not yet initialized",
            "the GPUs' NVLink fabric is not set up",
            "systemctl status nvidia-fabricmanager; its version must be the driver's",
        ),
        (
            *(Kind.KERNELS, CAUSE, "no kernel image is available"),
            r"no kernel image is available for execution",
            "the engine's kernels were not built for this kind of GPU",
            "set engine.python to a build for this GPU",
        ),
        (
            *(Kind.GPU_MISSING, CAUSE, "cuda"),
            r"No CUDA GPUs are available|no CUDA-capable device is detected|CUDA error: invalid device ordinal",
            "the engine does not see its GPUs",
            "nvidia-smi -L must list them; the key gpus, or the mode, says which are meant",
        ),
        (
            *(Kind.DRIVER, CAUSE, "driver"),
            r"Driver/library version mismatch|driver version is insufficient|driver on your system is too old|"
            r"Found no NVIDIA driver|CUDA driver initialization failed",
            "the NVIDIA driver does not fit: it is missing, too old, or was updated without being loaded anew",
            _DRIVER,
        ),
        (
            *(Kind.DRIVER, CAUSE, "libcuda.so"),
            r"^(?:ImportError|OSError): (?P<file>libcuda\.so\S*): ",
            "the NVIDIA driver's library {file} cannot be found",
            _DRIVER,
        ),
        (
            *(Kind.DRIVER, CAUSE, "forward compatibility"),
            r"forward compatibility was attempted on non supported HW",
            "the NVIDIA driver is too old for the CUDA of the engine",
            _DRIVER,
        ),
        (
            *(Kind.GPU_FAULT, CAUSE, "cuda error: "),
            r"(?:AcceleratorError|RuntimeError): CUDA error: (?P<why>.+)",
            "a GPU failed: {why}",
            _XID,
        ),
        (
            *(Kind.GPU_FAULT, SUSPECT, "cuda error: "),
            r"CUDA error: (?P<why>.+)",
            "a GPU failed: {why}",
            _XID,
        ),
        (
            *(Kind.KERNELS, CAUSE, "minimum required version"),
            r"(?P<what>[\w.-]+) (?:is installed with version|with minimum required version) .*",
            "the engine's package {what} is missing or too old",
            "install what the engine's version asks for into the environment of engine.python",
        ),
        (
            *(Kind.SLOW_ALL_REDUCE, WARNING, "allreduce"),
            r"Setup Custom allreduce failed with (?P<why>.+)\. To silence|Custom ?[Aa]ll\w+ is disabled because",
            "the ranks do without their fast all-reduce, so that every token takes longer: {why}",
            "nvidia-smi topo -m shows whether these GPUs are joined by NVLink",
        ),
        # Ports.
        (
            *(Kind.BOOTSTRAP_PORT, CAUSE, "server error: "),
            r"^Server error: .* bind on address \('(?P<host>[^']*)', (?P<port>\d+)[^)]*\): (?P<why>.+)",
            "the prefill cannot bind its bootstrap port {port}, so that no decode finds it: {why}",
            "set another internal_port. " + _LISTENS,
        ),
        (
            *(Kind.HTTP_PORT, CAUSE, "attempting to bind on address"),
            r"attempting to bind on address \('(?P<host>[^']*)', (?P<port>\d+)[^)]*\): (?P<why>.+)",
            "the engine loaded the model and then could not bind port {port} of {host}: {why}",
            "set another port or host. " + _LISTENS,
        ),
        (
            *(Kind.RENDEZVOUS_PORT, CAUSE, "server socket has failed"),
            r"server socket has failed to (?:listen|bind).*?(?:port: |\]:|\d:)(?P<port>\d+)",
            "the ranks cannot meet: their port {port} is taken",
            "set another internal_port. " + _LISTENS,
        ),
        (
            *(Kind.RENDEZVOUS_PORT, CAUSE, "port is already in use. dist_init_port"),
            r"dist_init_port=(?P<port>\d+)",
            "the ranks cannot meet: a port from {port} on is taken",
            "set another internal_port. " + _LISTENS,
        ),
        (
            *(Kind.RENDEZVOUS_PORT, WARNING, "is in use. waiting"),
            r"port (?P<port>\d+) is in use\. Waiting",
            "the engine waits for port {port}, which is taken",
            _LISTENS,
        ),
        # What every process may run out of.
        (
            *(Kind.HOST_MEMORY, CAUSE, "memory"),
            r"^MemoryError\b|\[Errno 12\] Cannot allocate memory|DefaultCPUAllocator: (?:can't|not enough) .*memory",
            "the host has no memory left",
            "free shows the host's memory",
        ),
        (
            *(Kind.DISK_FULL, CAUSE, "no space left on device"),
            r"No space left on device(?:: '(?P<path>[^']+)')?",
            "a file system is full {path}",
            "df -h shows which; /dev/shm and /var/cache/dsv4ctl are the engine's",
        ),
        (
            *(Kind.NOT_ALLOWED, CAUSE, "[errno "),
            r"\[Errno (?:1|13|30)\] (?P<why>[\w -]+): '(?P<path>[^']+)'",
            "the engine cannot use {path}: {why}",
            "the user of the unit needs access to it; the unit may write in /var/cache/dsv4ctl, /tmp and /dev/shm only",
        ),
        (
            *(Kind.LIMIT, SUSPECT, "too many open files"),
            r"Too many open files",
            "the engine has as many files open as it may",
            "systemctl show -p LimitNOFILE dsv4-server; 65535 is what the engine asks for",
        ),
        (
            *(Kind.LIMIT, SUSPECT, "can't start new thread"),
            r"can't start new thread",
            "the engine has as many threads as it may",
            "systemctl show -p TasksMax -p TasksCurrent dsv4-server",
        ),
    )
)
