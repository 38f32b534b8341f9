"""Units of memory and rounding to pages. SGLang prints "GB" and divides by 2**30; here that is GiB, and GB is 10**9."""

MIB = 1024**2
GIB = 1024**3
MB = 10**6
GB = 10**9


def gib(number: float) -> int:
    """So many GiB in bytes."""
    return round(number * GIB)


def floor_to(step: int, number: float) -> int:
    """The largest multiple of `step` that is not above `number`."""
    return int(number // step) * step


def ceil_to(step: int, number: int) -> int:
    """The smallest multiple of `step` that is not below `number`."""
    return -(-number // step) * step
