# SPDX-License-Identifier: Apache-2.0
"""Random marks, planted in requests, that no error answer may bring back (contract, section 3)."""

import base64
import secrets
import string
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

MARK_LENGTH = 14
# A sanitizer that cuts a text short must not hide a leak: this much of a mark is enough to recognise it.
RECOGNISED_LENGTH = 10
SECRET_LENGTH_MINIMUM = 8


def _letters(count: int) -> str:
    return "".join(secrets.choice(string.ascii_lowercase) for _ in range(count))


@dataclass(frozen=True, slots=True)
class Canaries:
    """One set per run. Only content is a canary: identifiers such as a model's name and numbers may be echoed.

    `secrets` are the user's own headers; `model` is the model's name, which may be a path.
    """

    content: str = field(default_factory=lambda: _letters(MARK_LENGTH))
    directory: str = field(default_factory=lambda: _letters(MARK_LENGTH))
    key: str = field(default_factory=lambda: "sk-" + _letters(24))
    base64: str = field(default_factory=lambda: base64.b64encode(secrets.token_bytes(33)).decode())
    file: str = field(default_factory=lambda: _letters(MARK_LENGTH))
    query: str = field(default_factory=lambda: _letters(MARK_LENGTH))
    header: str = field(default_factory=lambda: _letters(MARK_LENGTH))
    secrets: tuple[str, ...] = ()
    model: str = ""

    @property
    def path(self) -> str:
        return f"/srv/{self.directory}/w.bin"

    @property
    def prompt(self) -> str:
        """A prompt of at most 128 characters that carries the four kinds of content."""
        return f"{self.content} {self.path} {self.key} {self.base64}"

    def marks(self) -> Iterator[tuple[str, str]]:
        """Pairs of what was planted, in words, and the text that gives it away."""
        yield "content of the request", self.content
        yield "a path in the request", self.directory
        yield "a key in the request", self.key.removeprefix("sk-")
        yield "base64 in the request", self.base64
        yield "the name of an uploaded file", self.file
        yield "the query string of a URL", self.query
        yield "the value of a header", self.header

    def found_in(self, texts: Iterable[str]) -> list[str]:
        """What came back, in words; empty when nothing did."""
        lowered = "\n".join(texts).lower()
        return [words for words, mark in self.marks() if mark[:RECOGNISED_LENGTH].lower() in lowered]

    def removed_from(self, text: str) -> str:
        """`text` without what the probe itself has sent, which `found_in` finds, and the model's name."""
        for sent in (self.path, self.key, self.base64, self.model):
            text = text.replace(sent, "") if sent else text
        return text

    def secret_in(self, texts: Iterable[str]) -> bool:
        """Whether a header that the user gave came back."""
        everything = "\n".join(texts)
        return any(secret in everything for secret in self.secrets if len(secret) >= SECRET_LENGTH_MINIMUM)
