# SPDX-License-Identifier: Apache-2.0
"""A prompt's text, whatever vLLM-Omni passes for a prompt at that place."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from vllm_omni_rig.checkpoint import text_of


def text_of_prompt(prompt: Any) -> str:
    """The text of a string, or of a mapping or object with ``prompt``, ``input`` (speech) or ``prompt_token_ids``."""
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, list):
        return text_of_prompt(prompt[0]) if prompt else ""
    fields = ("prompt", "input", "prompt_token_ids")
    get = prompt.get if isinstance(prompt, Mapping) else partial(getattr, prompt)
    *texts, token_ids = (get(field, None) for field in fields)
    return next((text for text in texts if isinstance(text, str)), None) or text_of(token_ids or ())
