#!/bin/sh
# The first process of a private machine: lays an overlay over the host's root and becomes systemd.
#   unshare --fork --kill-child --pid --mount --uts --ipc --net boot.sh CGROUP UNIT_PATH IMAGE [FOLDER...]
# CGROUP is a folder below the cgroup2 mount, the machine's root cgroup from here on; UNIT_PATH is where systemd looks for units. IMAGE is an archive
# of what an earlier machine had written, or '': with it that machine boots again, its /run and /tmp as fresh as ever. Each FOLDER is
# bound read-only at its own path: an overlay does not contain what is mounted below its lower layer, and /dev, /run and /tmp are fresh.
# Says its pid, in the host's numbers, on stdout; on stderr why it cannot boot. What is written inside lives in a tmpfs that ends with the last process.
set -eu

if [ "$1" != --in-cgroup ]; then
  # /proc is still the host's here, and the shell itself opens the file, so this is our pid as the host counts.
  read -r pid _ </proc/self/stat
  echo "$pid"
  # First the cgroup, then its namespace, or systemd would make its slices in the host's root cgroup. The parent stays outside: a cgroup with
  # controllers enabled below it may hold no process of its own.
  echo 0 >"$1/cgroup.procs"
  shift
  exec unshare --cgroup /bin/sh "$0" --in-cgroup "$@" >&2
fi
unit_path=$2 image=$3
shift 3

# No folder of the host is needed for this: the mount hides /dev/shm in our namespace only.
scratch=/dev/shm
mount -t tmpfs -o mode=0755 tmpfs "$scratch"
upper=$scratch/upper root=$scratch/root
mkdir "$upper" "$scratch/work" "$root"

[ -z "$image" ] || tar --extract --xattrs --xattrs-include="*" --file="$image" --directory="$upper"
# A whiteout in the upper layer: the host's own deployment, engines, systemd settings and journal are not there inside.
for path in etc/systemd etc/dsv4ctl etc/machine-id etc/hostname var/lib/dsv4ctl var/cache/dsv4ctl var/log/journal opt/sglang models; do
  if [ -z "$image" ] && { [ -e "/$path" ] || [ -L "/$path" ]; }; then
    mkdir -p "$(dirname "$upper/$path")"
    mknod "$upper/$path" c 0 0
  fi
done
if ! mount -t overlay -o "lowerdir=/,upperdir=$upper,workdir=$scratch/work" overlay "$root"; then
  echo "the kernel refuses an overlay over / (a container's root often cannot be a lower layer); run it on the host itself" >&2
  exit 1
fi
cd "$root"

read_only() { mount --bind "$1" "$2" && mount -o remount,bind,ro "$2"; }

mkdir -p proc sys dev run tmp var/tmp var/log etc
mount -t tmpfs -o mode=0755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=0755,nosuid tmpfs dev
mkdir dev/pts dev/shm
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t devpts -o newinstance,mode=0620,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
# No kmsg: it is the host's.
for node in null zero full random urandom tty; do
  : >"dev/$node"
  mount --bind "/dev/$node" "dev/$node"
done
mount -t proc proc proc
for path in sys sysrq-trigger irq bus fs; do
  [ ! -e "proc/$path" ] || read_only "proc/$path" "proc/$path"
done
mount -t sysfs sysfs sys
mount -o remount,bind,ro sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
for folder in "$@"; do
  mkdir -p ".$folder"
  read_only "$folder" ".$folder"
done

# Whoever wants to know what was written in the machine looks here instead of at all files of the host.
# Below /run, where `dsv4ctl init` looks for no models: in another place it would find each a second time.
mkdir -p run/written
read_only "$upper" run/written

# A hermetic set of units: nothing of the host's is started, cleaned, mounted or written to a kernel variable.
units=run/systemd/system
mkdir -p "$units/sysinit.target.wants" "$units/sockets.target.wants" run/lock run/no-generators etc/systemd/system var/lib/systemd
for target in sysinit basic sockets timers paths slices local-fs swap network network-online time-sync multi-user shutdown umount final; do
  printf '[Unit]\nDefaultDependencies=no\n' >"$units/$target.target"
done
printf 'Requires=sysinit.target\nWants=sockets.target\nAfter=sysinit.target sockets.target\n' >>"$units/basic.target"
printf 'Requires=basic.target\nAfter=basic.target\n' >>"$units/multi-user.target"
lib=usr/lib/systemd
[ -x "$lib/systemd" ] || lib=lib/systemd
for unit in systemd-journald.service systemd-journald.socket systemd-journald-dev-log.socket dbus.service dbus.socket; do
  cp -L "$lib/system/$unit" "$units/"
done
ln -s ../systemd-journald.service "$units/sysinit.target.wants/"
for unit in systemd-journald.socket systemd-journald-dev-log.socket dbus.socket; do
  ln -s "../$unit" "$units/sockets.target.wants/"
done
printf '[Journal]\nStorage=volatile\nRuntimeMaxUse=256M\nReadKMsg=no\nAudit=no\n' >etc/systemd/journald.conf
[ -s etc/machine-id ] || tr -d - </proc/sys/kernel/random/uuid >etc/machine-id
echo dsv4ctl-rehearsal >etc/hostname

ip link set lo up
pivot_root . .
umount -l .
cd /
# As on any booted host: what systemd mounts for a unit's credentials is passed on into the unit. Our peers are mounts of this namespace only, because
# `unshare` has made all of them private to it.
mount --make-rshared /
# The clock, the modules and the raw devices are the host's, so nobody inside gets a hand on them.
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin container=dsv4ctl \
  SYSTEMD_UNIT_PATH="$unit_path" SYSTEMD_GENERATOR_PATH=/run/no-generators SYSTEMD_ENVIRONMENT_GENERATOR_PATH=/run/no-generators \
  setpriv --bounding-set=-sys_time,-sys_module,-sys_rawio "/$lib/systemd" --system --unit=basic.target --show-status=no
