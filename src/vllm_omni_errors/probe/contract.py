# SPDX-License-Identifier: Apache-2.0
"""Who promised what: a rule is held against a server only if its own contract has the rule."""

from collections.abc import Collection
from enum import IntEnum


class Contract(IntEnum):
    """What a server promises; each holds all that come before it.

    `OPENAI`: the OpenAI API reference (error object, streams), HTTP itself, and that no answer shows the inside of the
    server (CWE-209). `VLLM`: what vLLM adds (integer codes, its types, `http_requests_total`). `OMNI`: this project's
    contract, for any vLLM-Omni, migrated or not.
    """

    OPENAI = 0
    VLLM = 1
    OMNI = 2

    @property
    def word(self) -> str:
        """As on the command line and in reports."""
        return self.name.lower()


TITLES = {"openai": "OpenAI API", "vllm": "vLLM", "omni": "vLLM-Omni"}
_MARKS: tuple[tuple[Contract, frozenset[str]], ...] = (
    (Contract.OMNI, frozenset({"/tokenize", "/version", "/v1/images/generations"})),
    (Contract.VLLM, frozenset({"/tokenize", "/version"})),
)


def recognise(paths: Collection[str]) -> Contract:
    """The contract of a server that has routes with these paths."""
    return next((contract for contract, marks in _MARKS if marks <= set(paths)), Contract.OPENAI)
