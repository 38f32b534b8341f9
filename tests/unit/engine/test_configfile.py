"""SGLang's --config file, as people write it, and what it stands for."""

import pytest

from dsv4ctl.engine import configfile
from dsv4ctl.engine.readback import Given

FILE = """---
# how we serve
model-path: /models/a b   # the big one
tp: 4
context-length: 131072
trust-remote-code: true
enable-metrics: false
served-model-name: "x # y"
api-key: 'it''s'
numa-node: [0, 0, 1, 1]
cuda-graph-bs-decode:
  - 1
  - 2
json-model-override-args: {"a": {"b": 1}}
revision: null
"""


def test_a_flat_mapping_is_the_options_that_it_stands_for() -> None:
    assert configfile.parse(FILE) == (
        Given("--model-path", ("/models/a b",)),
        Given("--tp-size", ("4",)),
        Given("--context-length", ("131072",)),
        Given("--trust-remote-code"),
        Given("--served-model-name", ("x # y",)),
        Given("--api-key", ("it's",)),
        Given("--numa-node", ("0", "0", "1", "1")),
        Given("--cuda-graph-bs-decode", ("1", "2")),
        Given("--json-model-override-args", ('{"a": {"b": 1}}',)),
    )


@pytest.mark.parametrize(
    "text",
    ["just text", "a: |\n  b", "a: &x 1", "a:\n  b: 1", "- a", "a: [1,", "a: {b", "a: !!int 1", "a: b: c", 'a: "x'],
)
def test_what_is_more_than_that_is_refused_and_not_read_half(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        configfile.parse(text)
