#!/bin/sh
# On a Debian machine with a network: fetches what lab.sh needs into FOLDER/packages and FOLDER/wheels, which may then be carried to the GPU machine.
#   fetch.sh FOLDER [PYTHON-VERSION]     PYTHON-VERSION is that of the GPU machine's python3, such as 3.12; left out: this one's
set -eu
cd "$(dirname "$0")/../.."
folder=$1
pip="$PWD/.venv/bin/pip --disable-pip-version-check"
version=${2:-$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')}
rm -rf "$folder"
mkdir -p "$folder/packages" "$folder/wheels"
(
  cd "$folder/packages"
  apt-get -qq -o APT::Sandbox::User=root download systemd libsystemd-shared libsystemd0 dbus dbus-bin dbus-daemon dbus-system-bus-common \
    libdbus-1-3 libexpat1 iproute2 libbpf1 libmnl0 libelf1 libtirpc3 libtirpc-common libcap2 libcap2-bin libkmod2 libapparmor1 libaudit1 libcap-ng0 \
    libcryptsetup12 libfdisk1 libseccomp2 libacl1 libblkid1 libmount1 libselinux1 libpcre2-8-0 libgcrypt20 libgpg-error0 liblz4-1 liblzma5 libzstd1 \
    libssl3 libpam0g libcrypt1 libip4tc2 libdevmapper1.02.1 libudev1 libjson-c5 libargon2-1 libuuid1 libp11-kit0 libffi8 libgssapi-krb5-2 libkrb5-3 \
    libk5crypto3 libcom-err2 libkrb5support0 libkeyutils1 zlib1g
)
# shellcheck disable=SC2086 # pip is a command with an argument
{
  $pip wheel -q --no-deps -w "$folder/wheels" . sdnotify
  # manylinux by glibc: pip takes each tag for itself and implies no older one.
  set -- --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64
  $pip download -q --only-binary=:all: --implementation cp --python-version "$version" "$@" --find-links "$folder/wheels" -d "$folder/wheels" \
    "$folder"/wheels/dsv4ctl-*.whl pytest
}
