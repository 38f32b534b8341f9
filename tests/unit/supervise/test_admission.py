"""How often the gate looks again at what will be free by itself."""

from dsv4ctl.supervise import admission


def test_the_gate_looks_rarer_the_longer_gpus_are_in_use() -> None:
    """B34: each look starts a program that asks the driver."""
    assert [admission.pace_s(waited_s) for waited_s in (0, 10, 30, 50, 119)] == [1, 1, 3, 5, 5]
