"""What frees ports and GPUs, and what stands against it, as data."""

from dataclasses import replace

from dsv4ctl import free, plan
from dsv4ctl.blame import Segment, blame
from dsv4ctl.free import AwaitGpus, EndTree, Found, RemoveSegment
from dsv4ctl.model import Gpu, GpuView, HostView, Instance, PortView
from dsv4ctl.problems import ForeignHolder, GpuProblem, PortTaken
from dsv4ctl.shared import Share, Space
from dsv4ctl.steps import Start
from tests.unit.blame.forests import UUID, ask, holds, listens, process, scene
from tests.unit.test_plan import instance, release

GIB = 2**30


def gpus(*used_gib: int) -> GpuView:
    return GpuView(
        gpus=tuple(
            Gpu(
                index=index, uuid=UUID.format(index), name="H200", pci_address="", total_bytes=141 * GIB,
                used_bytes=used * GIB, reserved_bytes=0,
            )
            for index, used in enumerate(used_gib)
        )
    )  # fmt: skip


def server() -> Instance:
    return replace(instance(), gpu_uuids=tuple(UUID.format(n) for n in range(4)))


def stray() -> Found:
    main = process(1000, 200)
    there = scene(main, engines=[1000], listeners=(listens(30001, main),), holds=(holds(0, main),))
    return Found(blame=blame(there, ask(30001, gpus=[0])), gpus=gpus(8, 0, 0, 0), holds=there.holds)


def foreign() -> Found:
    main = process(1000, 200, comm="nginx", cgroup="/system.slice/nginx.service")
    there = scene(main, listeners=(listens(30001, main),), holds=(holds(0, main),))
    return Found(blame=blame(there, ask(30001, gpus=[0])), gpus=gpus(8, 0, 0, 0), holds=there.holds)


def test_a_stray_is_ended_and_its_memory_waited_for_before_the_start() -> None:
    steps = plan.deploy(release(server()), HostView(), stray())

    kinds = [type(s).__name__ for s in steps if isinstance(s, EndTree | AwaitGpus | Start)]
    assert kinds == ["EndTree", "AwaitGpus", "Start"]
    (wait,) = (s for s in steps if isinstance(s, AwaitGpus))
    assert wait.gpus == ((0, UUID.format(0)),)
    assert wait.limit_s == 120


def test_idle_gpus_are_not_waited_for() -> None:
    steps = plan.deploy(release(server()), HostView(), Found(gpus=gpus(0, 0, 0, 0)))

    assert not [s for s in steps if isinstance(s, AwaitGpus)]


def test_leftovers_are_removed_before_the_start_with_their_size() -> None:
    found = Found(segments=(Segment(path="/dev/shm/sgl_x", uid=0, size_bytes=25 * 2**20, inode=7),))  # noqa: S108

    steps = plan.deploy(release(server()), HostView(), found)

    (removal,) = (s for s in steps if isinstance(s, RemoveSegment))
    assert "25.0 MiB" in removal.reason
    assert steps.index(removal) < next(n for n, s in enumerate(steps) if isinstance(s, Start))


def test_a_stray_on_the_port_is_no_refusal_and_a_foreign_holder_is() -> None:
    for found, refused in ((stray(), False), (foreign(), True)):
        holder = found.blame.suspects[0].process
        assert holder is not None
        port = PortView(port=30001, holders=(listens(30001, holder),), blocked="pid 1000 listens on it")
        view = HostView(ports={30001: port})

        problems = plan.refusals(release(server()), view, found)

        assert bool([p for p in problems if isinstance(p, PortTaken)]) is refused
        assert bool([p for p in problems if isinstance(p, ForeignHolder)]) is refused


def test_a_refusal_says_who_where_what_and_what_to_type() -> None:
    (problem,) = free.on_gpus(foreign())

    for part in ("pid 1000 (nginx, user root, nginx.service, since ", "holds 1.0 GiB of GPU 0", "somebody installed"):
        assert part in str(problem)
    assert problem.hint == "systemctl stop nginx.service   or   the same command with --evict 1000"


def test_gpus_that_cannot_be_read_refuse_a_start_and_not_a_running_instance() -> None:
    found = Found(gpus=GpuView(problem="GPU query hung for 10 s"))

    (problem,) = plan.refusals(release(server()), HostView(), found)

    assert isinstance(problem, GpuProblem)
    assert "hung for 10 s" in str(problem)


def test_a_worker_without_main_process_gets_half_a_second() -> None:
    lost = process(1000, 1)
    there = scene(lost, engines=[1000], holds=(holds(0, lost),))

    (step,) = free.ends(Found(blame=blame(there, ask(gpus=[0]))), term_s=25)

    assert step.term_s == 0.5


def space(*, free_mib: int, ours_mib: int = 0) -> Space:
    share = Share(user="nobody", used_bytes=900 * 2**20, files=1, largest="/dev/shm/somebodys")  # noqa: S108 -- a name
    return Space(total_bytes=2**30, free_bytes=free_mib * 2**20, ours_bytes=ours_mib * 2**20, shares=(share,))


def test_a_start_is_refused_when_shared_memory_has_no_room_for_it() -> None:
    (refused,) = plan.refusals(release(server()), HostView(), Found(space=space(free_mib=100)))

    assert "cannot start dsv4-server.service: there are 100.0 MiB of 1.0 GiB left in /dev/shm" in str(refused)
    assert "192.0 MiB are needed" in str(refused)
    assert "user nobody has 900.0 MiB of 1 file in it, the largest file is /dev/shm/somebodys" in str(refused)


def test_what_our_own_engines_have_in_shared_memory_goes_before_a_start() -> None:
    assert plan.refusals(release(server()), HostView(), Found(space=space(free_mib=100, ours_mib=92))) == ()
