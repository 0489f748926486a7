# SPDX-License-Identifier: Apache-2.0
"""The fault grammar, without a server."""

import contextlib
import os
import re
import signal
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_omni_rig import faults
from vllm_omni_rig.failures import CANARIES, FAILURES, make, text
from vllm_omni_rig.faults import ACTIONS, PLACES, PLACES_OF, SHORT, Fault, FaultSyntaxError, asked, parse, perform

PACKAGE = Path(faults.__file__).parent

EVERY_FAULT = [
    f"FAULT:{name}{f'={argument}' if argument else ''}@{place}"
    for name, action in ACTIONS.items()
    for argument in (action.arguments if isinstance(action.arguments, dict | type(PLACES)) else [action.default])
    for place in action.places
]


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(faults.SWITCH, ",".join(PLACES_OF["2"]))


@pytest.mark.parametrize("written", EVERY_FAULT)
def test_every_action_argument_and_place_of_the_tables_can_be_written(written: str) -> None:
    [fault] = parse(f"a cat {written} on a mat")
    assert str(fault) == written


@pytest.mark.parametrize(
    ("written", "fault"),
    [
        ("FAULT:value", Fault("raise", "ValueError", "last")),
        ("FAULT:runtime", Fault("raise", "RuntimeError", "last")),
        ("FAULT:oom", Fault("raise", "OutOfMemoryError", "last")),
        ("FAULT:guard", Fault("raise", "GuardrailViolationError", "last")),
        ("FAULT:sleep=2.5", Fault("sleep", "2.5", "last")),
        ("FAULT:kill", Fault("kill", "", "last")),
        ("FAULT:exit", Fault("exit", "3", "last")),
        ("FAULT:s1input", Fault("raise", "ValueError", "input")),
        ("ENC:FAULT:value", Fault("raise", "ValueError", "stage0")),
        ("ENC:FAULT:kill", Fault("kill", "", "stage0")),
        ("FAULT:guard@front", Fault("raise", "GuardrailViolationError", "front")),
        ("FAULT:badoutput", Fault("output", "blank", "last")),
        ("FAULT:error=404.NotFoundError", Fault("error", "404.NotFoundError", "message")),
    ],
)
def test_a_fault_without_place_belongs_to_its_usual_one(written: str, fault: Fault) -> None:
    assert parse(written) == [fault]


def test_faults_come_in_the_order_of_the_prompt() -> None:
    prompt = "FAULT:sleep=1@front, then FAULT:raise=ValueError@stage0. FAULT:kill"
    assert [str(fault) for fault in parse(prompt)] == [
        "FAULT:sleep=1@front",
        "FAULT:raise=ValueError@stage0",
        "FAULT:kill@last",
    ]


def test_a_full_stop_after_a_fault_is_not_part_of_it() -> None:
    assert parse("FAULT:sleep=1. Then paint.") == [Fault("sleep", "1", "last")]


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("FAULT:explode", "there is no such action; there are raise, sleep"),
        ("FAULT:raise", "the argument is one of ValueError"),
        ("FAULT:raise=Nonsense", "the argument is one of ValueError"),
        ("FAULT:sleep=long", "the argument must look like"),
        ("FAULT:kill=9", "takes no argument"),
        ("FAULT:guard=1", "takes no argument, it stands for raise=GuardrailViolationError"),
        ("FAULT:value@nowhere", "not at nowhere; it can happen at last, front, stage0, input, stage1"),
        ("FAULT:output=none@front", "not at front; it can happen at last, stage1"),
        ("FAULT:error=700", "the argument must look like"),
    ],
)
def test_a_word_that_the_grammar_does_not_have_is_an_error_that_says_what_there_is(written: str, says: str) -> None:
    with pytest.raises(FaultSyntaxError, match=f"^{written}: .*{says}"):
        parse(f"a cat {written}")


@pytest.mark.parametrize(
    ("server", "written"),
    [("1", "FAULT:value@front"), ("1", "FAULT:s1input"), ("1", "FAULT:wire"), ("2", "FAULT:silence")],
)
def test_a_place_that_the_server_does_not_have_is_an_error(server: str, written: str) -> None:
    with pytest.raises(FaultSyntaxError, match=r"it can(not)? happen"):
        parse(written, PLACES_OF[server])


def test_the_usual_place_is_the_first_that_the_server_has() -> None:
    assert parse("FAULT:wire", PLACES_OF["2"]) == [Fault("wire", "bytes", "stage1")]
    assert parse("FAULT:wire", PLACES_OF["scripted"]) == [Fault("wire", "bytes", "message")]


@given(st.text() | st.from_regex(r"(ENC:)?FAULT:\w*(=[\w.]*)?(@\w*)?"))
def test_any_text_is_parsed_or_refused(prompt: str) -> None:
    with contextlib.suppress(FaultSyntaxError):
        assert len(parse(prompt)) == len(re.findall(r"FAULT:\w", prompt))


@given(st.text().filter(lambda each: "FAULT:" not in each))
def test_a_prompt_without_the_word_asks_for_nothing(prompt: str) -> None:
    assert parse(prompt) == []


@pytest.mark.parametrize("written", EVERY_FAULT)
def test_nothing_happens_while_faults_are_off(written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(faults.SWITCH, raising=False)
    assert perform(f"{written} FAULT:explode", *PLACES) == []


@pytest.mark.usefixtures("on")
def test_a_place_performs_only_its_own_faults() -> None:
    prompt = "FAULT:raise=KeyError@stage0 FAULT:raise=TypeError@front"
    perform(prompt, "last", "stage1")
    with pytest.raises(TypeError):
        perform(prompt, "front")


@pytest.mark.usefixtures("on")
def test_a_place_refuses_a_prompt_with_an_unknown_fault_for_another() -> None:
    with pytest.raises(FaultSyntaxError):
        asked("FAULT:explode@stage0", "front")


@pytest.mark.usefixtures("on")
def test_faults_that_a_place_does_itself_are_returned() -> None:
    assert perform("FAULT:output=none@stage1 FAULT:wire=shape", "stage1") == [
        Fault("output", "none", "stage1"),
        Fault("wire", "shape", "stage1"),
    ]


@pytest.mark.usefixtures("on")
def test_sleep_sleeps_for_its_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    assert perform("FAULT:sleep=2.5", "last") == []
    assert slept == [2.5]


@pytest.mark.usefixtures("on")
@pytest.mark.parametrize(("written", "number"), [("FAULT:kill", signal.SIGKILL), ("FAULT:freeze", signal.SIGSTOP)])
def test_kill_and_freeze_signal_the_process_itself(written: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *arguments: sent.append(arguments))
    perform(written, "last")
    assert sent == [(os.getpid(), number)]


@pytest.mark.usefixtures("on")
@pytest.mark.parametrize(("written", "code"), [("FAULT:exit", 3), ("FAULT:exit=7", 7)])
def test_exit_ends_the_process_with_its_argument(written: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    perform(written, "last")
    assert codes == [code]


HERE = [name for name, failure in FAILURES.items() if failure.module in {"builtins", "asyncio", "jinja2", "fastapi"}]


@pytest.mark.parametrize("name", [name for name in HERE if name != "ExceptionGroup"])
def test_an_exception_has_the_class_that_it_is_named_after_and_carries_canaries(name: str) -> None:
    exception = make(name, "front")
    assert type(exception).__name__ == name
    for canary in ("path", "key", "address"):
        assert CANARIES[canary] in str(exception)


def test_the_text_of_a_failure_says_what_and_where() -> None:
    assert text("KeyError", "stage1").startswith("KeyError injected at stage1: ")


@pytest.mark.parametrize("short", SHORT)
def test_a_short_word_stands_for_a_fault_that_the_grammar_has(short: str) -> None:
    assert parse(f"FAULT:{short}")[0] == parse(f"FAULT:{SHORT[short]}")[0]


@pytest.mark.parametrize("table", [ACTIONS, PLACES, SHORT, faults.OUTPUTS, faults.WIRES])
def test_the_readme_names_every_word_of_the_grammar(table: dict[str, object]) -> None:
    readme = (PACKAGE.parents[1] / "README.md").read_text(encoding="utf-8")
    assert [word for word in table if f"`{word}`" not in readme and f"`{word}=" not in readme] == []
