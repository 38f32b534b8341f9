import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4ctl import config, modes
from dsv4ctl.found import CheckpointFound, EngineFound, Found, choose, config_text, lines
from dsv4ctl.model import Gpu, GpuView

GIB = 1024**3
FLASH = 149 * GIB


def engine(path: str, *, serving: bool = False) -> EngineFound:
    return EngineFound(path=path, signs=("on PATH",), version="0.5.23", serving=serving)


def checkpoint(path: str, *, weights_bytes: int = FLASH, missing: int = 0, serving: bool = False) -> CheckpointFound:
    return CheckpointFound(
        path=path, signs=("below /models",), weights_bytes=weights_bytes, missing=missing, serving=serving
    )


def gpus(count: int, gib: int = 140) -> GpuView:
    return GpuView(
        gpus=tuple(
            Gpu(
                index=index,
                uuid=f"GPU-{index}",
                name="NVIDIA H200",
                pci_address=f"0000:{index:02x}:00.0",
                total_bytes=gib * GIB,
                used_bytes=0,
                reserved_bytes=0,
                numa_node=index // 4,
            )
            for index in range(count)
        )
    )


def test_nothing_found_chooses_nothing_and_says_so() -> None:
    choice = choose(Found())
    assert (choice.engine, choice.checkpoint, choice.tp) == (None, None, 0)
    assert choice.engine_reason == "no environment with sglang was found"
    assert choice.checkpoint_reason == "no DeepSeek-V4 checkpoint was found"


def test_the_only_engine_is_chosen() -> None:
    choice = choose(Found(engines=(engine("/opt/a/bin/python"),)))
    assert choice.engine == engine("/opt/a/bin/python")
    assert choice.engine_reason == "the only one found"


def test_of_several_engines_the_one_that_serves_is_chosen() -> None:
    choice = choose(Found(engines=(engine("/a/bin/python"), engine("/b/bin/python", serving=True))))
    assert choice.engine == engine("/b/bin/python", serving=True)
    assert choice.engine_reason == "the one that serves now; 2 were found"


def test_of_several_engines_that_do_not_serve_the_strongest_sign_is_chosen() -> None:
    choice = choose(Found(engines=(engine("/a/bin/python"), engine("/b/bin/python"))))
    assert choice.engine == engine("/a/bin/python")
    assert choice.engine_reason == "on PATH; 2 were found"


def test_an_incomplete_checkpoint_is_never_chosen() -> None:
    choice = choose(Found(checkpoints=(checkpoint("/m/DeepSeek-V4-Flash", missing=3),)))
    assert choice.checkpoint is None
    assert choice.checkpoint_reason == "1 incomplete DeepSeek-V4 checkpoint was found"


def test_the_checkpoint_that_serves_is_chosen_before_a_flash_and_a_flash_before_a_pro() -> None:
    pro, flash = checkpoint("/m/DeepSeek-V4-Pro"), checkpoint("/m/DeepSeek-V4-Flash")
    serving = checkpoint("/m/mine", serving=True)
    assert choose(Found(checkpoints=(pro, flash, serving))).checkpoint == serving
    assert choose(Found(checkpoints=(pro, flash))).checkpoint == flash
    assert choose(Found(checkpoints=(pro,))).checkpoint == pro


@pytest.mark.parametrize(
    ("view", "weights_bytes", "tp"),
    [
        (gpus(8), FLASH, 4),
        (gpus(8, gib=40), FLASH, 8),
        (gpus(4), FLASH, 4),
        (gpus(2), FLASH, 2),
        (gpus(1), FLASH, 1),
        (gpus(3), FLASH, 2),
        (gpus(8, gib=16), FLASH, 8),
        (GpuView(problem="no driver"), FLASH, 0),
        (GpuView(), FLASH, 0),
    ],
)
def test_the_mode_is_the_one_that_the_weights_fit_on(view: GpuView, weights_bytes: int, tp: int) -> None:
    found = Found(checkpoints=(checkpoint("/m/x", weights_bytes=weights_bytes),), gpus=view)
    assert choose(found).tp == tp


def test_the_mode_is_explained() -> None:
    found = Found(checkpoints=(checkpoint("/m/x"),), gpus=gpus(8))
    assert choose(found).mode_reason == "weights of 149.0 GiB on 4 of 8 GPUs with 140.0 GiB each"
    small = Found(checkpoints=(checkpoint("/m/x"),), gpus=gpus(1, gib=80))
    assert (
        choose(small).mode_reason == "weights of 149.0 GiB do not fit well on any number of 1 GPUs with 80.0 GiB each"
    )


def test_what_was_found_is_shown_with_what_is_chosen_and_why() -> None:
    found = Found(
        engines=(engine("/opt/a/bin/python"),),
        checkpoints=(checkpoint("/m/DeepSeek-V4-Flash"), checkpoint("/m/half", missing=2)),
        gpus=gpus(1),
        notes=("looking into /mnt takes longer than 5 s; there may be more",),
    )
    assert list(lines(found, choose(found))) == [
        "engines:",
        "  /opt/a/bin/python  sglang 0.5.23  (on PATH)",
        "  -> /opt/a/bin/python: the only one found",
        "DeepSeek-V4 checkpoints:",
        "  /m/DeepSeek-V4-Flash  149.0 GiB  (below /models)",
        "  /m/half  149.0 GiB, 2 weight files missing  (below /models)",
        "  -> /m/DeepSeek-V4-Flash: the only one found",
        "looking into /mnt takes longer than 5 s; there may be more",
        "GPUs:",
        "  0  NVIDIA H200  140.0 GiB  NUMA node 0",
        "  -> mode single-tp1: weights of 149.0 GiB do not fit well on any number of 1 GPUs with 140.0 GiB each",
    ]


def test_the_written_config_holds_what_was_chosen() -> None:
    found = Found(engines=(engine("/opt/a/bin/python"),), checkpoints=(checkpoint("/m/Flash"),), gpus=gpus(8))
    spec = config.load(config_text(choose(found)), {}, path="written").spec
    assert spec.mode == modes.BUILT_IN["single-tp4"]
    assert (spec.engine.python, spec.engine.model) == ("/opt/a/bin/python", "/m/Flash")


def test_the_written_config_for_few_gpus_defines_its_own_mode() -> None:
    found = Found(checkpoints=(checkpoint("/m/Flash", weights_bytes=GIB),), gpus=gpus(2))
    mode = config.load(config_text(choose(found)), {}, path="written").spec.mode
    assert (mode.name, mode.roles[0].tp, mode.roles[0].gpus) == ("single-tp2", 2, (0, 1))


def test_the_written_config_for_a_bare_host_can_be_read_and_filled_in() -> None:
    text = config_text(choose(Found()))
    assert config.load(text, {}, path="written").spec.engine.model is None
    filled = text.replace("#python", "python").replace("#model", "model")
    assert config.load(filled, {}, path="written").spec.engine.model == "/models/DeepSeek-V4-Flash"


@given(
    st.text(min_size=1, max_size=30).filter(lambda t: t.isprintable() and set(t.split("/")).isdisjoint({"", ".", ".."}))
)
def test_a_path_with_any_printable_characters_is_written_so_that_it_is_read_back(name: str) -> None:
    found = Found(checkpoints=(checkpoint(f"/m/{name}"),))
    text = config_text(choose(found)) + 'served_model_name = "x"\n'
    assert config.load(text, {}, path="written").spec.engine.model == f"/m/{name}"
