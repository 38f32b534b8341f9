"""Paths of cgroups as systemd and container engines write them."""

import pytest

from dsv4ctl import cgroups, names

ID = "4f1d0c" + "ab" * 29


@pytest.mark.parametrize(
    ("cgroup", "place"),
    [
        (f"/system.slice/docker-{ID}.scope", "docker container 4f1d0cababab"),
        (f"/docker/{ID}", "docker container 4f1d0cababab"),
        (f"/docker/{ID}/init.scope", "docker container 4f1d0cababab"),
        (f"/machine.slice/libpod-{ID}.scope/container", "podman container 4f1d0cababab"),
        (
            f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope",
            "podman container 4f1d0cababab",
        ),
        (f"/system.slice/containerd-{ID}.scope", "containerd container 4f1d0cababab"),
        (
            f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1b.slice/cri-containerd-{ID}.scope",
            "containerd container 4f1d0cababab",
        ),
        (f"/kubepods/burstable/pod1b/{ID}", "kubernetes container 4f1d0cababab"),
        (f"/kubepods.slice/kubepods-pod1b.slice/crio-{ID}.scope", "cri-o container 4f1d0cababab"),
        ("/lxc.payload.web/system.slice/nginx.service", "lxc container web"),
        ("/machine.slice/machine-build.scope", "machine container machine-build.scope"),
        ("/user.slice/user-0.slice/session-3.scope", "login session 3"),
        ("/system.slice/nginx.service", "nginx.service"),
        (
            "/user.slice/user-1000.slice/user@1000.service/app.slice/jupyter.service",
            "jupyter.service of user 1000's own service manager",
        ),
        ("/dsv4.slice/dsv4-server.service", "dsv4-server.service"),
        ("/", ""),
        ("", ""),
    ],
)
def test_whoever_is_in_a_cgroup_is_placed_in_words(cgroup: str, place: str) -> None:
    assert cgroups.place(cgroup) == place


@pytest.mark.parametrize(
    "cgroup",
    [
        "/system.slice/docker.service",
        "/system.slice/containerd.service",
        "/user.slice/user-0.slice/session-c1.scope",
        "/dsv4.slice/dsv4-server.service",
        f"/system.slice/run-r{ID[:32]}.scope",
        "/system.slice/kubelet.service",
        "/system.slice/lxcfs.service",
    ],
)
def test_the_services_of_container_engines_and_scopes_of_the_host_are_no_containers(cgroup: str) -> None:
    assert cgroups.container_of(cgroup) is None


@pytest.mark.parametrize(
    "unit", ["run-u12.service", "run-r0f3c8c2c5d4e4a0b.scope", "run-1234.scope", "run-p12-i3.scope"]
)
def test_a_unit_of_systemd_run_is_transient_and_one_with_a_file_is_not(unit: str) -> None:
    assert cgroups.is_transient(unit)
    assert not any(
        map(cgroups.is_transient, ("runner.service", "run-report.service", "nginx.service", "session-3.scope"))
    )


def test_the_scope_of_an_adopted_engine_says_what_it_is_and_only_below_our_slice() -> None:
    inside = f"/dsv4.slice/{names.adopted_scope('prefill', 30100)}/below"
    assert cgroups.adopted(inside) == cgroups.Adopted("dsv4-adopted-prefill-30100.scope", "prefill", 30100)
    user = "/user.slice/user-1000.slice/user@1000.service"
    for cgroup in ("/dsv4.slice/dsv4-server.service", f"{user}{inside}", "/dsv4.slice/dsv4-adopted-x.scope", "/"):
        assert cgroups.adopted(cgroup) is None
