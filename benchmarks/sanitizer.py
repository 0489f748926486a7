# SPDX-License-Identifier: Apache-2.0
"""The sanitizer against vLLM's own, and against itself: the time for a megabyte is that for a kilobyte, or less."""

from collections.abc import Iterator
from functools import partial

from vllm_omni_errors import upstream
from vllm_omni_errors.public_text import sanitize

from .measure import Result, medians

MESSAGE = "The prompt is too long for this model: please make it shorter, and try it again."
WITH_A_MODEL_ID = "max_tokens is 4096, too large for the model meta-llama/Llama-3.1-8B-Instruct here."
ORDINARY = {
    "80 bytes": MESSAGE,
    "80 bytes with a model id": WITH_A_MODEL_ID,
    "1 KB": (MESSAGE + " ") * 12,
    "1 KB with a model id": (MESSAGE + " ") * 11 + WITH_A_MODEL_ID,
}
SHAPES = {
    "slashes": "/a",
    "dots": "../",
    "quotes": "'/",
    "base64": "QUJD",
    "newlines": "\n",
    "near-miss keys": "sk-a ",
    "brackets": "[(<{",
    "surrogates": "\ud800",
    "Chinese and slashes": "的/a",
    "URLs": "http://a@b?c ",
    "backslashes": "\\",
    "names of secrets": "token: ",
    "numbers": "1, 2, 3, x",
    "paths": "a/b.py ",
}
KILOBYTE, MEGABYTE = 1_024, 1_048_576
UPSTREAM_CHARACTERS = 512
"""The most that upstream's is asked to read of a hostile shape: it needs 0.85 s for 4 KB of the first one."""


def run() -> Iterator[Result]:
    """Yield every line of the subject."""
    theirs = upstream.original("sanitize_message")
    for name, text in ORDINARY.items():
        found = medians({"ours": partial(sanitize, text), "theirs": partial(theirs, text)})
        yield Result("sanitizer", f"{name}, ours", found["ours"], "µs")
        yield Result("sanitizer", f"{name}, ours / upstream's", found["ours"] / found["theirs"], "×")
    for name, shape in SHAPES.items():
        texts = {size: shape * (size // len(shape)) for size in (UPSTREAM_CHARACTERS, KILOBYTE, MEGABYTE)}
        found = medians({str(size): partial(sanitize, text) for size, text in texts.items()}, repetitions=7)
        short = texts[UPSTREAM_CHARACTERS]
        against = medians({"ours": partial(sanitize, short), "theirs": partial(theirs, short)}, repetitions=7)
        yield Result("sanitizer", f"1 MB of {name}", found[str(MEGABYTE)], "µs", 1_000)
        yield Result("sanitizer", f"1 MB / 1 KB of {name}", found[str(MEGABYTE)] / found[str(KILOBYTE)], "×", 1_500)
        yield Result("sanitizer", f"512 bytes of {name}, ours / upstream's", against["ours"] / against["theirs"], "×")
