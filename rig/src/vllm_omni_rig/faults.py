# SPDX-License-Identifier: Apache-2.0
"""The fault grammar: what a prompt may ask to go wrong, and where. The tables here are the documentation.

A prompt may hold any number of faults, anywhere in its text::

    FAULT:<action>[=<argument>][@<place>]          FAULT:raise=VLLMValidationError@front

:data:`ACTIONS` lists the actions, :data:`PLACES` the places, :data:`SHORT` the words that stand for a whole fault.
Without a place, a fault belongs to the first of its action's places that the server has: the last stage, mostly. Each
place performs the faults that are addressed to it, in their order, and ignores the others. What the grammar or the
server does not have is a :exc:`FaultSyntaxError`, so that a typing error cannot look like a fault that was withstood.

Faults happen only in processes whose environment has :data:`SWITCH`, which lists the places that the pipeline has; the
rig sets it for the servers that it starts.
"""

import os
import re
import signal
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from vllm_omni_rig.failures import FAILURES, make

SWITCH = "VLLM_OMNI_RIG_FAULTS"

FRONT, FIRST, INPUT, SECOND, LAST, MESSAGE = "front", "stage0", "input", "stage1", "last", "message"

PLACES: Mapping[str, str] = MappingProxyType(
    {
        FRONT: "the API process, where it hands the request to the engine",
        FIRST: "the first stage; if it is an AR stage, an exception there is fatal to it, by upstream's design",
        INPUT: "the stage input processor, in the orchestrator's thread, between the two stages",
        SECOND: "the second stage",
        LAST: "the last stage, whichever it is",
        MESSAGE: "what the orchestrator tells the API process",
    }
)

PLACES_OF: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "1": (FIRST, LAST),
        "2": (FRONT, FIRST, INPUT, SECOND, LAST),
        "shared": (FRONT, FIRST),
        "scripted": (FRONT, LAST, MESSAGE),
    }
)
"""Number of stages, ``shared`` by several API processes, or ``scripted`` → the places that such a server has.

A diffusion stage alone has no hook in its front."""

SHORT: Mapping[str, str] = MappingProxyType(
    {
        "value": "raise=ValueError",
        "runtime": "raise=RuntimeError",
        "oom": "raise=OutOfMemoryError",
        "guard": "raise=GuardrailViolationError",
        "s1input": "raise=ValueError@input",
        "badoutput": "output=blank",
    }
)

OUTPUTS: Mapping[str, str] = MappingProxyType(
    {
        "none": "no image at all",
        "blank": "an image of no pixels: encoding it raises `ValueError`, on every route",
        "dtype": "an array of complex numbers: `ValueError` with one stage (`images/helpers.py:132`)",
        "type": "a text: `ValueError` with one stage (`images/helpers.py:130`)",
    }
)

WIRES: Mapping[str, str] = MappingProxyType(
    {
        "bytes": "a byte that msgpack does not have: the message cannot be decoded",
        "shape": "an array with a shape that its data does not have: the message can be decoded, the array cannot",
    }
)


class FaultSyntaxError(ValueError):
    """The prompt asks for a fault that the grammar, or this server, does not have."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: what, with which argument, where."""

    action: str
    argument: str
    place: str

    def __str__(self) -> str:
        return f"FAULT:{self.action}{f'={self.argument}' if self.argument else ''}@{self.place}"


def _raise(fault: Fault) -> None:
    raise make(fault.argument, fault.place)


def _sleep(fault: Fault) -> None:
    time.sleep(float(fault.argument))


def _kill(_: Fault) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _freeze(_: Fault) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _exit(fault: Fault) -> None:
    os._exit(int(fault.argument))


@dataclass(frozen=True, slots=True)
class Action:
    """An action: what it does, its argument (one of a table, a pattern, or none), and where it can happen.

    ``perform`` is None if the place does it itself, in making its output or its message.
    """

    text: str
    perform: Callable[[Fault], None] | None = None
    arguments: Mapping[str, object] | re.Pattern[str] | None = None
    default: str = ""
    places: tuple[str, ...] = (LAST, FRONT, FIRST, INPUT, SECOND)
    """The usual one first."""


_SECONDS = re.compile(r"\d+(\.\d+)?")
_CODE = re.compile(r"\d+")
_STATUS = re.compile(r"(none|[1-5]\d\d)(\.\w+)?")

ACTIONS: Mapping[str, Action] = MappingProxyType(
    {
        "raise": Action("raise that exception, canaries in its text", _raise, FAILURES),
        "sleep": Action("sleep so many seconds, then go on", _sleep, _SECONDS, "1"),
        "kill": Action("kill the process with SIGKILL", _kill),
        "freeze": Action("stop the process with SIGSTOP: it lives and says nothing", _freeze),
        "exit": Action("end the process at once, with that exit code", _exit, _CODE, "3"),
        "output": Action("give that in place of an image", None, OUTPUTS, "none", (LAST, SECOND)),
        "noinput": Action("give the next stage no input", places=(INPUT,)),
        "wire": Action("send a malformed message: one that holds that", None, WIRES, "bytes", (SECOND, MESSAGE)),
        "error": Action("report a failure of that status and type, not fatal", None, _STATUS, "500", (MESSAGE,)),
        "outputerror": Action("give an output that carries such a failure", None, _STATUS, "500", (MESSAGE,)),
        "deadstage": Action("report, for this request, that the stage has no live replica", places=(MESSAGE,)),
        "deadengine": Action("report that the engine is dead", places=(MESSAGE,)),
        "silence": Action("report nothing, ever", places=(MESSAGE,)),
        "part": Action("give a part of the output first, then go on", places=(MESSAGE,)),
    }
)

_FAULT = re.compile(r"(?P<first>ENC:)?FAULT:(?P<action>\w+)(?:=(?P<argument>\w+(?:\.\w+)*))?(?:@(?P<place>\w+))?")


def parse(text: str, places: Collection[str] = PLACES) -> list[Fault]:
    """The faults in a prompt, in their order. ``ENC:`` before one means ``@stage0``.

    Args:
        text: the prompt.
        places: those that the server has.

    Raises:
        FaultSyntaxError: an action, argument or place that there is not; its text says which there are.
    """
    return [_fault(match, places) for match in _FAULT.finditer(text)]


def _fault(match: re.Match[str], places: Collection[str]) -> Fault:
    written = match.group()
    name, argument, place = match["action"], match["argument"] or "", match["place"] or ""
    if name in SHORT:
        if argument:
            raise FaultSyntaxError(f"{written}: {name} takes no argument, it stands for {SHORT[name]}")
        name, argument, usual = re.split("[=@]", f"{SHORT[name]}@")[:3]
        place = place or usual
    action = ACTIONS.get(name)
    if action is None:
        raise FaultSyntaxError(f"{written}: there is no such action; there are {', '.join((*ACTIONS, *SHORT))}")
    allowed = [each for each in action.places if each in places]
    place = place or (FIRST if match["first"] else "".join(allowed[:1]))
    if place not in allowed:
        where = f"it can happen at {', '.join(allowed)}" if allowed else "it cannot happen on this server"
        raise FaultSyntaxError(f"{written}: not {f'at {place}' if place else 'here'}; {where}")
    return Fault(name, _argument(written, argument or action.default, action), place)


def _argument(written: str, argument: str, action: Action) -> str:
    match action.arguments:
        case None if argument:
            raise FaultSyntaxError(f"{written}: the action takes no argument")
        case re.Pattern() as pattern if not pattern.fullmatch(argument):
            raise FaultSyntaxError(f"{written}: the argument must look like {pattern.pattern}")
        case Mapping() as table if argument not in table:
            raise FaultSyntaxError(f"{written}: the argument is one of {', '.join(table)}")
    return argument


def places_here() -> tuple[str, ...]:
    """The places of the server that this process belongs to; none if faults are off."""
    return tuple(filter(None, os.environ.get(SWITCH, "").split(",")))


def asked(text: str, *places: str) -> list[Fault]:
    """The faults in ``text`` that belong to one of ``places``; none if faults are off."""
    here = places_here()
    if not here or "FAULT:" not in text:
        return []
    return [fault for fault in parse(text, here) if fault.place in places]


def perform(text: str, *places: str) -> list[Fault]:
    """Do what ``text`` asks of one of ``places``; return the faults that the place has to do itself.

    Anything may be raised from here.
    """
    left = []
    for fault in asked(text, *places):
        if do := ACTIONS[fault.action].perform:
            do(fault)
        else:
            left.append(fault)
    return left
