# SPDX-License-Identifier: Apache-2.0
"""What a check is: requests, what is right for each, and what must be there for them to mean anything."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

from vllm_omni_errors.probe.answer import Answer
from vllm_omni_errors.probe.call import Call
from vllm_omni_errors.probe.context import Context
from vllm_omni_errors.probe.rules import Expectation


class Danger(IntEnum):
    """What a check can do to a server that has the fault it looks for. Checks run in this order."""

    HARMLESS = 0
    MAY_STALL = 1
    MAY_KILL = 2
    KILLS = 3


@dataclass(frozen=True, slots=True)
class Step:
    """One exchange and what is right in it. `generates`: the answer may take as long as a generation.

    `until`: it is repeated until the answer has this, and then judged; the counter is not. `once`: it is not repeated
    to measure the counter better.
    """

    call: Call
    expect: Expectation
    generates: bool = False
    until: Callable[[Answer], bool] | None = None
    once: bool = False


Need = Callable[[Context], str | None]
Steps = Sequence[Step] | Generator[Step, Answer, None]
Transport = Literal["http", "sse", "websocket", "job", "openai"]


@dataclass(frozen=True, slots=True)
class Check:
    """One entry of the catalogue; removing the entry removes the check.

    `rule` is the sentence of the contract that it proves, `source` where that stands (RFC or contract section, case).
    `needs` say why the check does not apply to a server. `steps` are sent one after the other, or all at once when
    `together`; a generator is given the answer to each. `creates`: it leaves something on the server, or may.
    """

    id: str
    name: str
    rule: str
    source: str
    needs: tuple[Need, ...]
    steps: Callable[[Context], Steps]
    danger: Danger = Danger.HARMLESS
    together: bool = False
    transport: Transport = "http"
    creates: bool = False


def route(method: str, path: str) -> Need:
    """Needs a route that the server offers, with a model that it serves."""

    def missing(context: Context) -> str | None:
        return context.missing_route(method, path)

    return missing


def rig(context: Context) -> str | None:
    """Needs the rig's faults."""
    return context.rig_missing


def front(context: Context) -> str | None:
    """Needs the rig's faults in the API process."""
    return context.rig_missing or (None if context.faults_in_front else "this server of the rig has no fault there")


def real_stages(context: Context) -> str | None:
    """Needs the rig's stages themselves: the scripted engine reports failures as a stage of 0.30.0 does."""
    return context.rig_missing or ("the engine is scripted, and says no more than 0.30.0" if context.scripted else None)


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
