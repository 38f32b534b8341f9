"""Text of /proc/PID/stat -> value, in the kernel's words (proc_pid_stat(5)). Reads no file itself."""

from dataclasses import dataclass

# A thread of the kernel's own (include/linux/sched.h).
PF_KTHREAD = 0x00200000
# On its way out, and no signal changes that: memory, then files, then namespaces are given up, each in its time.
PF_EXITING = 0x00000004


@dataclass(frozen=True, slots=True, kw_only=True)
class Stat:
    """The fields that matter here."""

    pid: int
    comm: str
    state: str
    parent_pid: int
    group: int
    session: int
    threads: int
    start_ticks: int
    kernel: bool = False
    exiting: bool = False

    @property
    def ended(self) -> bool:
        """Whether nothing of it runs any more.

        A zombie with threads left still runs: a killed thread that sits inside a driver call keeps the GPU's memory.
        """
        return self.state in "ZXx" and self.threads <= 1


def parse_stat(text: str) -> Stat:
    """Read /proc/PID/stat. The name may itself hold brackets, spaces and line ends, so the last `)` counts."""
    head, tail = text.rsplit(")", 1)
    pid, comm = head.split("(", 1)
    state, *numbers = tail.split()
    flags = int(numbers[5])
    parent, group, session = map(int, numbers[:3])
    return Stat(
        pid=int(pid),
        comm=comm,
        state=state,
        parent_pid=parent,
        group=group,
        session=session,
        threads=int(numbers[16]),
        start_ticks=int(numbers[18]),
        kernel=bool(flags & PF_KTHREAD),
        exiting=bool(flags & PF_EXITING),
    )
