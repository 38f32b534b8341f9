"""Runs inside the machine: a system call that goes on for minutes in state R and does not look at signals.

    libc.mincore(*prepare(ANSWERS))   in the process that shall be deaf; ANSWERS is a file that this makes

mincore(2) tells of every page of a range whether it is in memory. A range of terabytes, of a file without a page, costs
nothing and takes the kernel minutes; between its pieces it looks at no signal. Its answers are written over each other
into ANSWERS, 16 MiB that are mapped many times in a row. The first byte of it is 1 before the call and 0 within it; the
call ends when somebody empties ANSWERS, for then the next answer cannot be written.
"""

import ctypes
import mmap
import os

PIECE_BYTES = 16 << 20
# 37 ns a page were seen: four minutes, were it not ended before.
PIECES = 400
MAP_FIXED, MAP_NORESERVE = 0x10, 0x4000

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_size_t
libc.mmap.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mincore.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_size_t]


def prepare(answers: str) -> tuple[int, int, int]:
    """What to call mincore with, once ready: `libc.mincore(*prepare(FILE))`."""
    file = os.open(answers, os.O_RDWR | os.O_CREAT, 0o600)
    os.write(file, b"\1" * PIECE_BYTES)
    told = mapped(0, PIECE_BYTES * PIECES, mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)
    for number in range(PIECES):
        flags = mmap.MAP_SHARED | MAP_FIXED | mmap.MAP_POPULATE
        mapped(told + number * PIECE_BYTES, PIECE_BYTES, mmap.PROT_READ | mmap.PROT_WRITE, flags, file)
    size = PIECE_BYTES * PIECES * mmap.PAGESIZE
    empty = os.memfd_create("empty")
    os.ftruncate(empty, size)
    return mapped(0, size, mmap.PROT_READ, mmap.MAP_SHARED, empty), size, told


def mapped(at: int, size: int, access: int, flags: int, file: int) -> int:
    found = int(libc.mmap(at, size, access, flags | MAP_NORESERVE, file, 0))
    if found == ctypes.c_size_t(-1).value:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return found
