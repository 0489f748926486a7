# SPDX-License-Identifier: Apache-2.0
"""The tiny model's files, and reading a prompt back from its token ids."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from vllm_omni_rig.checkpoint import SPECIAL_TOKENS, text_of, vocabulary, write
from vllm_omni_rig.prompts import text_of_prompt


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def tokenizer(model: Path) -> Tokenizer:
    return Tokenizer.from_file(str(model / "tokenizer.json"))


@given(text=st.text().filter(lambda each: not any(token in each for token in SPECIAL_TOKENS)))
def test_a_prompt_is_read_back_from_its_token_ids(text: str, tokenizer: Tokenizer) -> None:
    assert text_of(tokenizer.encode(text).ids) == text


def test_special_and_unknown_tokens_count_as_spaces(tokenizer: Tokenizer) -> None:
    ids = [*tokenizer.encode("<|im_start|>user<|im_end|>").ids, 511]
    assert text_of(ids) == " user  "


def test_a_token_is_a_byte_or_special() -> None:
    assert sorted(vocabulary().values()) == list(range(256 + len(SPECIAL_TOKENS)))


def test_every_file_is_json_and_there_are_no_weights(model: Path) -> None:
    names = sorted(file.name for file in model.iterdir())
    assert names == ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"]
    for name in names:
        json.loads((model / name).read_text(encoding="utf-8"))


def test_the_end_of_a_message_ends_the_generation(model: Path) -> None:
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    assert config["eos_token_id"] == vocabulary()["<|im_end|>"]


@pytest.mark.parametrize(
    "prompt",
    [
        "a cat",
        {"prompt": "a cat", "modalities": ["image"]},
        {"prompt_token_ids": [vocabulary()[letter] for letter in "aĠcat"]},
        SimpleNamespace(prompt="a cat"),
        SimpleNamespace(prompt=None, prompt_token_ids=[vocabulary()[letter] for letter in "aĠcat"]),
        ["a cat", "a dog"],
    ],
)
def test_a_prompt_of_any_form_has_a_text(prompt: Any) -> None:
    assert text_of_prompt(prompt) == "a cat"


@pytest.mark.parametrize("prompt", ["", {}, [], None, {"prompt": None}])
def test_a_prompt_without_text_has_an_empty_one(prompt: Any) -> None:
    assert text_of_prompt(prompt) == ""
