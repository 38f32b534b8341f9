"""Writes a two-layer random Llama: config and tokenizer, the weights come from --load-format dummy. mkmodel.py DIR"""

import json
import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # type: ignore[import-not-found]

SPECIALS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
IDS = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
SENTENCE = "the quick brown fox jumps over the lazy dog {} hello world, how are you today? I am fine."
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "vocab_size": 512,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "attention_bias": False,
    "mlp_bias": False,
    "initializer_range": 0.02,
}


def main(folder: Path) -> None:
    """Write every file of the model."""
    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder / "tokenizer.json")
    tokens = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 2048, "chat_template": TEMPLATE}
    for name, value in {
        "tokenizer_config.json": tokens | SPECIALS,
        "config.json": CONFIG | IDS,
        "generation_config.json": IDS,
    }.items():
        (folder / name).write_text(json.dumps(value), encoding="utf-8")


def write_tokenizer(path: Path) -> None:
    """A byte-level BPE of 510 tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=510, special_tokens=list(SPECIALS.values()), initial_alphabet=alphabet)
    tokenizer.train_from_iterator([SENTENCE.format(number) for number in range(200)], trainer)
    tokenizer.save(str(path))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
