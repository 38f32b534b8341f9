"""Engines that run here though nobody deployed them, in words. Changes nothing."""

from collections.abc import Iterator

from dsv4ctl import inquiry, who
from dsv4ctl.inquiry import Wanted
from dsv4ctl.model import GpuView


def words() -> Iterator[str]:
    """For those who look where nothing is deployed: such engines, found by themselves and without asking the GPUs."""
    trees = inquiry.look(Wanted(everything=True), GpuView()).blame.trees
    if trees:
        told = f"engines that nobody deployed run: {'; '.join(who.words(tree.root) for tree in trees)}"
        yield f"{told}; `dsv4ctl who`, `dsv4ctl adopt` or `dsv4ctl teardown --strays`"
