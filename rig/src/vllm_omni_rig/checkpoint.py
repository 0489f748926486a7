# SPDX-License-Identifier: Apache-2.0
"""The tiny model's directory: a random Qwen2 and a byte-level tokenizer, written as JSON in a moment.

There are no weights: the stage is started with ``load_format: dummy``. A token is a byte, so a prompt can be read back
from its token ids (:func:`text_of`), which is how the AR stage finds the faults in it.
"""

import json
from collections.abc import Iterable
from pathlib import Path

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CONTEXT_TOKENS = 512

_CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_characters() -> dict[int, str]:
    """Byte → the character that stands for it in a byte-level vocabulary, as GPT-2 introduced it.

    Printable bytes stand for themselves; the others take the code points from 256 on.
    """
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + index) for index, byte in enumerate(others)}


def vocabulary() -> dict[str, int]:
    """Token → id: the 256 byte characters in their order, then the special tokens."""
    return {token: number for number, token in enumerate((*sorted(byte_characters().values()), *SPECIAL_TOKENS))}


_BYTE_OF = {vocabulary()[character]: byte for byte, character in byte_characters().items()}


def text_of(token_ids: Iterable[int]) -> str:
    """The text of token ids; special tokens, and ids that the tokenizer does not have, count as spaces."""
    return bytes(_BYTE_OF.get(number, ord(" ")) for number in token_ids).decode(errors="replace")


def write(directory: Path) -> Path:
    """Write the model's files into ``directory`` and return it."""
    directory.mkdir(parents=True, exist_ok=True)
    tokens = vocabulary()
    end, start, stop = (tokens[name] for name in SPECIAL_TOKENS)
    files = {
        "config.json": {
            "architectures": ["Qwen2ForCausalLM"],
            "model_type": "qwen2",
            "vocab_size": 512,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "max_position_embeddings": CONTEXT_TOKENS,
            "tie_word_embeddings": True,
            "bos_token_id": start,
            "eos_token_id": stop,
            "torch_dtype": "float32",
        },
        "generation_config.json": {"eos_token_id": stop, "temperature": 0.0},
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": SPECIAL_TOKENS[2],
            "pad_token": SPECIAL_TOKENS[0],
            "additional_special_tokens": [SPECIAL_TOKENS[1]],
            "chat_template": _CHAT_TEMPLATE,
            "model_max_length": CONTEXT_TOKENS,
        },
        "tokenizer.json": {
            "version": "1.0",
            "added_tokens": [
                {"id": number, "content": name, "special": True, "normalized": False, "single_word": False,
                 "lstrip": False, "rstrip": False}
                for name, number in zip(SPECIAL_TOKENS, (end, start, stop), strict=True)
            ],
            "normalizer": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "post_processor": None,
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "vocab": tokens, "merges": []},
        },
    }  # fmt: skip
    for name, content in files.items():
        directory.joinpath(name).write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")
    return directory
