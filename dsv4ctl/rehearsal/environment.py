"""Makes an engine environment and a model of small files: a stand-in SGLang that starts where a real one would."""

import compileall
import json
import shutil
from pathlib import Path

from dsv4ctl import child

STANDIN = Path(__file__).with_name("standin")
# The last two only say that they are there: an engine that hands KV over is refused without one of them.
PACKAGES = ("sglang", "sglang-0.5.23.dist-info", "nixl", "mooncake")

# The shape of DeepSeek-V4-Flash: 46 shards, 43 layers, a million positions.
SHARDS = 46
CONFIG = {
    "architectures": ["DeepseekV4ForCausalLM"],
    "model_type": "deepseek_v4",
    "torch_dtype": "bfloat16",
    "hidden_size": 4096,
    "num_hidden_layers": 43,
    "num_nextn_predict_layers": 1,
    "num_attention_heads": 64,
    "num_key_value_heads": 1,
    "head_dim": 512,
    "q_lora_rank": 1024,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 2048,
    "sliding_window": 128,
    "vocab_size": 129280,
    "max_position_embeddings": 1048576,
    "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]},
}
TOKENIZER = {"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "added_tokens": []}
TOKENIZER_CONFIG = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 1048576}
# A safetensors file without tensors: the length of an empty header, and that header.
EMPTY_SHARD = (2).to_bytes(8, "little") + b"{}"
ASK = "import sys; print(sys._base_executable); print('%d.%d' % sys.version_info[:2])"


def install(folder: Path, *, base_python: str) -> Path:
    """Make an environment as `python -m venv` would, with the stand-in engine in it, and return its interpreter.

    `folder` is made and may exist; `base_python` is any interpreter of Python 3.11 or newer. Raises CannotRun when that
    interpreter does not answer, and OSError when the folder cannot be written.
    """
    base, version = child.run([base_python, "-I", "-S", "-c", ASK], timeout_s=10).stdout.split("\n")[:2]
    site = folder / "lib" / f"python{version}" / "site-packages"
    site.mkdir(parents=True, exist_ok=True)
    for name in PACKAGES:
        # Copied, not linked: the engine's user need not be allowed to read the checkout.
        shutil.copytree(STANDIN / name, site / name, dirs_exist_ok=True)
    # An engine's user cannot write here, and may have bytecode turned off; every process of it would compile again.
    compileall.compile_dir(site / "sglang", quiet=2)
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    for name in ("python", "python3", f"python{version}"):
        (programs / name).unlink(missing_ok=True)
        (programs / name).symlink_to(base if name == "python" else "python")
    _write_script(programs / "sglang", programs / "python")
    # It comes with FlashInfer; the stand-in compiles nothing.
    _write_script(programs / "ninja", programs / "python", "print('1.13.0')")
    home = Path(base).parent
    (folder / "pyvenv.cfg").write_text(
        f"home = {home}\ninclude-system-site-packages = false\nversion = {version}\n", encoding="utf-8"
    )
    return programs / "python"


# As pip writes it: children that are spawned import it again.
MAIN = "from sglang.cli.main import main\n\nif __name__ == '__main__':\n    main()"


def _write_script(path: Path, python: Path, code: str = MAIN) -> None:
    path.write_text(f"#!{python}\n{code}\n", encoding="utf-8")
    path.chmod(0o755)


def make_model(folder: Path) -> Path:
    """Make a folder that looks like a DeepSeek-V4-Flash checkpoint and holds no weights; returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    shards = [f"model-{number:05d}-of-{SHARDS:05d}.safetensors" for number in range(1, SHARDS + 1)]
    for shard in shards:
        (folder / shard).write_bytes(EMPTY_SHARD)
    index = {
        "metadata": {"total_size": 159_600_000_000},
        "weight_map": {f"model.shard.{number}.weight": shard for number, shard in enumerate(shards)},
    }
    for name, value in {
        "config.json": CONFIG,
        "model.safetensors.index.json": index,
        "tokenizer.json": TOKENIZER,
        "tokenizer_config.json": TOKENIZER_CONFIG,
    }.items():
        (folder / name).write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    return folder
