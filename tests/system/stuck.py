"""Runs inside the machine: a file system that takes every question and answers none, so that whoever asks is stuck.

    python stuck.py FOLDER

Says its pid when FOLDER is mounted. Whoever touches a file in it is in uninterruptible sleep from when he is killed, as
one inside a driver call is, and ends when this program does: the kernel then gives the mount up.

The file `closes-never` can be opened, and is never closed to its end: whoever has it open gets stuck on his way out,
when he has given up his memory and the list of his files, as one whose GPU contexts a driver takes down.
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
QUESTION = struct.Struct("=IIQQIIII")  # length, operation, number, of what file; user, group, process, nothing
LOOKUP, GETATTR, OPEN = 1, 3, 14
ATTRIBUTES = struct.Struct("=QQQQQQIIIIIIIIII")  # inode, size, blocks, times; then mode and links
ENTRY = struct.Struct("=QQQQII")  # file, generation, for how long that and the attributes hold
NAME, FILE, VALID_S = b"closes-never", 2, 3600


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


def answer(question: bytes) -> bytes:
    """What to say to a question about the one file that can be opened; b"" for all others."""
    _, operation, _, about, *_ = QUESTION.unpack(question[: QUESTION.size])
    attributes = ATTRIBUTES.pack(FILE, 0, 0, 0, 0, 0, 0, 0, 0, 0o100644, 1, 0, 0, 0, 4096, 0)
    if operation == LOOKUP and question[QUESTION.size :].rstrip(b"\0") == NAME:
        return ENTRY.pack(FILE, 0, VALID_S, VALID_S, 0, 0) + attributes
    if operation == GETATTR and about == FILE:
        return struct.pack("=QII", VALID_S, 0, 0) + attributes
    return struct.pack("=QII", 1, 0, 0) if operation == OPEN else b""


def main() -> None:
    """Answer the first question, which is the kernel's own, those about the one file, and no other."""
    asked = mounted(sys.argv[1])
    _, _, number = ASKED.unpack(os.read(asked, LARGEST)[: ASKED.size])
    body = INIT.pack(MAJOR, MINOR, 0, 0, 0, 0, 4096)
    os.write(asked, ANSWER.pack(ANSWER.size + len(body), 0, number) + body)
    sys.stdout.write(f"{os.getpid()}\n")
    sys.stdout.flush()
    while question := os.read(asked, LARGEST):
        if body := answer(question):
            number = QUESTION.unpack(question[: QUESTION.size])[2]
            os.write(asked, ANSWER.pack(ANSWER.size + len(body), 0, number) + body)


if __name__ == "__main__":
    main()
