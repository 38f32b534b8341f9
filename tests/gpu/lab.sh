#!/bin/bash
# On a machine with a real GPU and no systemd: boots one and runs the tests of this folder in it.
#   lab.sh DEBS WHEELS [PYTEST-ARGUMENT...]
# DEBS is a folder of Debian packages, WHEELS one of wheels for this machine's python3; README.md beside this file names both.
# The systemd of the packages becomes pid 1 of namespaces of its own over an overlay of the machine's root, so nothing that it writes reaches the
# machine; the GPUs' device nodes and the driver stay visible. Needs root and cgroup2. Ends with pytest's status.
set -eu

# What is written inside, and what the packages hold, lives in a tmpfs that ends with the last process.
scratch=/dev/shm
units=/etc/systemd/system:/run/systemd/system:/run/systemd/transient

read_only() { mount --bind "$1" "$2" && mount -o remount,bind,ro "$2"; }

lay() { # DEBS CHECKOUT WHEELS: the new root, in $scratch/root
  mount -t tmpfs tmpfs "$scratch"
  mkdir "$scratch"/{upper,work,root,packages}
  for deb in "$1"/*.deb; do dpkg-deb -x "$deb" "$scratch/packages"; done
  mount -t overlay overlay -o "lowerdir=/,upperdir=$scratch/upper,workdir=$scratch/work" "$scratch/root"
  cd "$scratch/root"
  mkdir -p opt/lab/packages opt/lab/checkout opt/lab/wheels
  read_only "$scratch/packages" opt/lab/packages
  read_only "$2" opt/lab/checkout
  read_only "$3" opt/lab/wheels
  # An overlay does not contain what is mounted below its lower layer: the driver, an interpreter.
  awk '$2 ~ "^/(opt|usr|lib)" { print $2 }' /proc/mounts | while read -r mounted; do
    mount --rbind "$mounted" ".$mounted"
  done
  for folder in run tmp dev; do mount -t tmpfs tmpfs "$folder"; done
  mkdir -p dev/shm dev/pts && mount -t tmpfs tmpfs dev/shm && mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
  ln -s pts/ptmx dev/ptmx
  ln -s /proc/self/fd dev/fd
  for node in /dev/{null,zero,full,random,urandom,tty} /dev/nvidia* /dev/nvidia-caps/*; do
    if [ -c "$node" ]; then mkdir -p ".${node%/*}" && : >".$node" && mount --bind "$node" ".$node"; fi
  done
  mount -t proc proc proc
  mount -t sysfs sysfs sys
  mount -t cgroup2 cgroup2 sys/fs/cgroup
}

furnish() { # systemd's programs and units, its bus, its journal; no unit of the machine's
  mkdir -p run/systemd/system/{sysinit,sockets}.target.wants run/lock etc/systemd/system usr/lib/systemd usr/share/dbus-1 var/lib/systemd mnt
  for target in sysinit basic sockets timers paths slices network network-online multi-user shutdown umount final; do
    printf '[Unit]\nDefaultDependencies=no\n' >"run/systemd/system/$target.target"
  done
  printf 'Requires=sysinit.target\nWants=sockets.target\nAfter=sysinit.target sockets.target\n' >>run/systemd/system/basic.target
  printf 'Requires=basic.target\nAfter=basic.target\n' >>run/systemd/system/multi-user.target
  for unit in systemd-journald.service systemd-journald.socket systemd-journald-dev-log.socket dbus.service dbus.socket; do
    cp -L "opt/lab/packages/lib/systemd/system/$unit" run/systemd/system/
  done
  ln -s ../systemd-journald.service run/systemd/system/sysinit.target.wants/
  for unit in systemd-journald.socket systemd-journald-dev-log.socket dbus.socket; do
    ln -s "../$unit" run/systemd/system/sockets.target.wants/
  done
  for file in opt/lab/packages/lib/systemd/*; do ln -sfn "/$file" "usr/lib/systemd/${file##*/}"; done
  for folder in bin usr/bin; do
    for file in "opt/lab/packages/$folder"/{systemctl,journalctl,systemd-run,systemd-analyze,systemd-cgls,busctl,dbus-daemon,ss,ip}; do
      if [ -e "$file" ]; then ln -sf "/$file" "usr/bin/${file##*/}"; fi
    done
  done
  cp -r opt/lab/packages/usr/share/dbus-1/. usr/share/dbus-1/
  grep -q ^messagebus: etc/group || echo messagebus:x:992: >>etc/group
  grep -q ^messagebus: etc/passwd || echo messagebus:x:992:992::/nonexistent:/usr/sbin/nologin >>etc/passwd
  mkdir -p run/systemd/system/dbus.service.d etc/ld.so.conf.d
  libraries=/opt/lab/packages/usr/lib/x86_64-linux-gnu:/opt/lab/packages/lib/x86_64-linux-gnu
  printf '[Service]\nEnvironment=LD_LIBRARY_PATH=%s\n' "$libraries" >run/systemd/system/dbus.service.d/libraries.conf
  # The machine's own libraries come first: those of the packages serve what it lacks.
  for folder in usr/local/nvidia/lib64 opt/lab/packages/{usr/,}lib/x86_64-linux-gnu{/systemd,}; do
    if [ -d "$folder" ]; then echo "/$folder"; fi
  done >etc/ld.so.conf.d/zz-lab.conf
  printf '[Journal]\nStorage=volatile\nReadKMsg=no\nAudit=no\n' >etc/systemd/journald.conf
  tr -d - </proc/sys/kernel/random/uuid >etc/machine-id
}

if [ "${1-}" = --first-process ]; then
  shift
  lay "$@"
  furnish
  pivot_root . mnt
  umount -l /mnt
  cd /
  mount --make-rshared /
  ldconfig
  ip link set lo up
  exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin container=dsv4ctl-lab SYSTEMD_UNIT_PATH=$units \
    /opt/lab/packages/lib/systemd/systemd --system --unit=multi-user.target --show-status=no
fi

debs=$(realpath "$1") wheels=$(realpath "$2") checkout=$(realpath "$(dirname "$0")/../..")
shift 2
groups=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
group=$groups/dsv4ctl-lab-$$
session=$group/user.slice/user-0.slice/session-1.scope
mkdir -p "$session"
log=$(mktemp)

end() {
  if [ -e "$group/cgroup.kill" ]; then echo 1 >"$group/cgroup.kill"; fi
  { wait; } 2>/dev/null
  for _ in {1..50}; do
    find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || true
    [ -d "$group" ] || break
    sleep 0.1
  done
  rm -f "$log"
}
trap end EXIT

# First the cgroup, then its namespace, or systemd would make its slices in the machine's root cgroup.
sh -c 'echo 0 >"$0/cgroup.procs" && exec "$@"' "$group" \
  unshare --fork --kill-child --pid --mount --uts --ipc --net --cgroup --propagation private \
  "$0" --first-process "$debs" "$checkout" "$wheels" >"$log" 2>&1 &
boot=$!

inside() {
  sh -c 'echo 0 >"$0/cgroup.procs" && exec "$@"' "$session" nsenter -t "$pid" --mount --uts --ipc --net --pid --cgroup -- env -i \
    PATH=/opt/dsv4ctl/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root USER=root LANG=C.UTF-8 LC_ALL=C.UTF-8 \
    SYSTEMD_UNIT_PATH=$units PYTHONDONTWRITEBYTECODE=1 DSV4CTL_GPU_LAB=1 "$@"
}

began=$(date +%s%N)
pid=
for _ in {1..100}; do
  read -r pid _ <"/proc/$boot/task/$boot/children" 2>/dev/null || true
  if [ -n "$pid" ] && [ "$(inside systemctl is-system-running 2>/dev/null)" = running ]; then break; fi
  sleep 0.1
done
if [ -z "$pid" ] || [ "$(inside systemctl is-system-running 2>&1)" != running ]; then
  echo "cannot boot systemd:" >&2
  cat "$log" >&2
  if [ -n "$pid" ]; then inside systemctl --failed --no-pager >&2 || true; inside journalctl -n 40 --no-pager >&2 || true; fi
  exit 1
fi
echo "$(inside systemctl --version | head -n 1) booted in $((($(date +%s%N) - began) / 1000000)) ms" >&2

python=$(command -v python3)
inside "$python" -m venv --without-pip /opt/dsv4ctl
site=$(inside /opt/dsv4ctl/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
inside sh -c '"$0" -m pip --python /opt/dsv4ctl/bin/python install -q --no-index --no-deps --no-cache-dir --root-user-action ignore /opt/lab/wheels/*.whl' \
  "$python"
echo "installed into $site" >&2
inside sh -c 'cd /opt/lab/checkout && exec "$@"' sh python -m pytest -p no:cacheprovider "${@:-tests/gpu}"
