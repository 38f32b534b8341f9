"""Planning for a large host: pure, so it is measured without one."""

import time
from collections.abc import Iterator

from dsv4ctl import plan
from dsv4ctl.model import HostView, Instance, Limits, Release, RenderedFile, Role


def rows() -> Iterator[tuple[str, str, str]]:
    """Figure, goal, measured."""
    instances = tuple(_instance(n) for n in range(64))
    files = tuple(RenderedFile(path=f"/etc/systemd/system/{i.unit}", text="unit\n" * 60) for i in instances)
    release = Release(digest="d", mode="m", instances=instances, files=files)
    began = time.perf_counter()
    steps = plan.deploy(release, HostView())
    took = 1000 * (time.perf_counter() - began)
    yield "planning for 64 instances on 512 GPUs", "under 50 ms", f"{took:.1f} ms, {len(steps)} steps"


def _instance(n: int) -> Instance:
    return Instance(
        name=f"server{n}", role=Role.SERVER, unit=f"dsv4-server{n}.service", argv=("/py",), environment=(),
        host="127.0.0.1", port=30001 + n, rendezvous_port=20001 + n, tp=8, gpus=tuple(range(8 * n, 8 * n + 8)),
        gpu_uuids=(), model="/m", served_model_name="m", context_length=None, user=None, api_key_file=None,
        secrets_file=None, limits=Limits(), digest=str(n),
    )  # fmt: skip
