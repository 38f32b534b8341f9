"""What is believed of a driver's words on memory and processes."""

from dataclasses import replace

import pytest

from dsv4ctl.blame import gpus
from dsv4ctl.blame.gpus import Proofs
from dsv4ctl.model import Gpu, GpuProcess, GpuView, Process
from tests.unit.blame.forests import process

GIB = 2**30
GPU = Gpu(
    index=3, uuid="GPU-3", name="H200", pci_address="0000:1b:00.0", total_bytes=141 * GIB, used_bytes=0,
    reserved_bytes=645 * 10**6,
)  # fmt: skip
WORKER = process(1000)


def listed(*pids: int) -> Gpu:
    return replace(GPU, used_bytes=8 * GIB, processes=tuple(GpuProcess(pid=p, used_bytes=8 * GIB) for p in pids))


def proofs(*there: Process, nodes: tuple[int, ...] = (), own_pids: bool = True) -> Proofs:
    known = {p.pid: p for p in there}
    return Proofs(processes=known, nodes=dict.fromkeys(nodes, frozenset({"nvidia3"})), own_pids=own_pids)


@pytest.mark.parametrize("used", [0, 100 * 2**20, 256 * 2**20])
def test_a_gpu_without_more_than_a_display_on_it_is_idle(used: int) -> None:
    assert gpus.busy(replace(GPU, used_bytes=used)) == ""


def test_an_old_drivers_reserve_is_not_taken_for_use_and_a_context_on_top_of_it_is() -> None:
    old = replace(GPU, reserved_bytes=None)

    assert gpus.busy(replace(old, used_bytes=645 * 10**6)) == ""
    assert gpus.busy(replace(old, used_bytes=645 * 10**6 + 600 * 2**20)) == "1.2 GiB in use"


def test_memory_that_is_not_told_is_not_taken_for_free() -> None:
    assert "N/A" in gpus.busy(replace(GPU, used_bytes=None))


def test_a_pid_is_believed_when_proc_agrees() -> None:
    (hold,) = gpus.holds(listed(1000), proofs(WORKER, nodes=(1000,)))

    assert (hold.believed, hold.words, hold.process, hold.used_bytes) == (True, "", WORKER, 8 * GIB)


@pytest.mark.parametrize(
    ("there", "nodes", "words"),
    [
        ((), (), "pid 1000 has ended, and the driver has not let go of its memory yet"),
        ((process(1000, kernel=True),), (), "is a thread of the kernel here"),
        ((process(1000, 7, state="Z"),), (), "has ended and waits for its parent, pid 7"),
        ((WORKER,), (), "has no GPU device open here"),
    ],
)
def test_each_reason_to_doubt_a_pid_has_its_own_sentence(
    there: tuple[Process, ...], nodes: tuple[int, ...], words: str
) -> None:
    (hold,) = gpus.holds(listed(1000), proofs(*there, nodes=nodes))

    assert not hold.believed
    assert words in hold.words


def test_a_holder_on_its_way_out_is_said_to_be_that_and_not_somebody_else() -> None:
    """Its files are given up, so that no device can be seen open."""
    (hold,) = gpus.holds(listed(1000), replace(proofs(WORKER), leaving=frozenset({1000})))

    assert (hold.believed, hold.words.partition(")")[2]) == (
        False,
        " is on its way out, and the driver has not let go of its memory yet",
    )


def test_in_a_pid_namespace_of_our_own_one_pid_that_does_not_fit_takes_the_belief_from_all() -> None:
    """B29: in a container the driver's numbers may be those of the host."""
    there = proofs(WORKER, nodes=(1000,), own_pids=False)

    assert gpus.holds(listed(1000), there)[0].believed
    both = gpus.holds(listed(1000, 4711), there)
    assert [h.believed for h in both] == [False, False]
    assert "another namespace" in both[0].words


def test_memory_that_nobody_is_listed_for_is_said_so_and_a_missing_list_is_no_empty_one() -> None:
    used = replace(GPU, used_bytes=8 * GIB)

    assert gpus.unattributed(used) == "the driver lists no process on it"
    assert "does not tell" in gpus.unattributed(replace(used, processes_told=False))
    assert gpus.unattributed(GPU) == ""


def test_whoever_has_the_device_open_is_shown_for_unattributed_memory_and_never_judged() -> None:
    """B27: memory in use and nobody listed for it."""
    (hold,) = gpus.by_device(replace(GPU, used_bytes=8 * GIB), proofs(WORKER, nodes=(1000,)))

    assert (hold.pid, hold.believed) == (1000, False)


def test_gpus_that_are_gone_moved_split_or_unreadable_are_each_told() -> None:
    view = GpuView(gpus=(GPU, replace(GPU, index=4, uuid="GPU-4", mig=True)))

    assert gpus.missing(view, {3: "GPU-3"}) == ""
    assert gpus.missing(view, {2: "GPU-3"}) == "GPU 2 was GPU-3 at the deploy, which is GPU 3 now"
    assert "GPU 5 (GPU-5) is not there any more: GPU 5: GPU is lost" in gpus.missing(
        replace(view, unreadable=("GPU 5: GPU is lost",)), {5: "GPU-5"}
    )
    assert "split by MIG" in gpus.missing(view, {4: "GPU-4"})
    assert "hung for 10 s" in gpus.missing(GpuView(problem="GPU query hung for 10 s"), {3: "GPU-3"})
