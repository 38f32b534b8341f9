"""Runs inside the machine: a file system that takes every question and answers none, so that whoever asks is stuck.

    python stuck.py FOLDER

Says its pid when FOLDER is mounted. Whoever touches a file in it is in uninterruptible sleep from when he is killed, as
one inside a driver call is, and ends when this program does: the kernel then gives the mount up.
"""

import ctypes
import os
import struct
import sys
from pathlib import Path

FUSE_DEVICE = (10, 229)
# The protocol's messages as of its version 7.19 (include/uapi/linux/fuse.h): a header, then what the question is about.
MAJOR, MINOR = 7, 19
ASKED = struct.Struct("=IIQ")  # length, operation, number
ANSWER = struct.Struct("=IiQ")  # length, error, number
INIT = struct.Struct("=IIIIHHI")  # major, minor, read ahead, flags, background, congestion, largest write
LARGEST = 1 << 17


def mounted(folder: str) -> int:
    """Mount a file system of our own there; the file by which the kernel asks."""
    if not Path("/dev/fuse").exists():
        os.mknod("/dev/fuse", 0o600 | 0o020000, os.makedev(*FUSE_DEVICE))
    asked = os.open("/dev/fuse", os.O_RDWR)
    Path(folder).mkdir(parents=True, exist_ok=True)
    options = f"fd={asked},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"never", folder.encode(), b"fuse", 0, options):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return asked


def main() -> None:
    """Answer the first question, which is the kernel's own, and no other."""
    asked = mounted(sys.argv[1])
    _, _, number = ASKED.unpack(os.read(asked, LARGEST)[: ASKED.size])
    body = INIT.pack(MAJOR, MINOR, 0, 0, 0, 0, 4096)
    os.write(asked, ANSWER.pack(ANSWER.size + len(body), 0, number) + body)
    sys.stdout.write(f"{os.getpid()}\n")
    sys.stdout.flush()
    while os.read(asked, LARGEST):
        pass


if __name__ == "__main__":
    main()
