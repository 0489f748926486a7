# SPDX-License-Identifier: Apache-2.0
"""What a check is: requests, what is right for each, and what must be there for them to mean anything."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from vllm_omni_errors.probe.call import Call
from vllm_omni_errors.probe.context import Context
from vllm_omni_errors.probe.rules import Expect


class Danger(IntEnum):
    """What a check can do to a server that has the fault it looks for. Checks run in this order."""

    HARMLESS = 0
    MAY_STALL = 1
    MAY_KILL = 2


@dataclass(frozen=True, slots=True)
class Step:
    """One request and what is right for it. `generates`: the answer may take as long as a generation."""

    call: Call
    expect: Expect
    generates: bool = False


Need = Callable[[Context], str | None]


@dataclass(frozen=True, slots=True)
class Check:
    """One entry of the catalogue; removing the entry removes the check.

    `rule` is the sentence of the contract that it proves, `source` where that stands (RFC or contract section, case).
    `needs` say why the check does not apply to a server. `steps` are sent one after the other, or all at once when
    `together`.
    """

    id: str
    name: str
    rule: str
    source: str
    needs: tuple[Need, ...]
    steps: Callable[[Context], Sequence[Step]]
    danger: Danger = Danger.HARMLESS
    together: bool = False
    transport: str = "http"


def route(method: str, path: str) -> Need:
    """Needs a route that the server offers, with a model that it serves."""

    def missing(context: Context) -> str | None:
        return context.missing_route(method, path)

    return missing


def rig(context: Context) -> str | None:
    """Needs the rig's faults."""
    return context.rig_missing


def local(context: Context) -> str | None:
    """Needs a server that can reach the probe's own media server."""
    return (
        None if context.client.is_local else "the server is on another host and cannot reach the probe's media server"
    )


def known_limit(context: Context) -> str | None:
    """Needs a published `max_model_len` small enough to be exceeded in one request."""
    if context.maximum_tokens is None:
        return "/v1/models does not say how long a prompt may be"
    if context.maximum_tokens > LONGEST_LIMIT_TOKENS:
        return f"prompts may have {context.maximum_tokens:,} tokens: too long a request to send"
    return None


LONGEST_LIMIT_TOKENS = 200_000
