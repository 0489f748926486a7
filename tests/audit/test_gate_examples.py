# SPDX-License-Identifier: Apache-2.0
"""The examples of a pre-commit hook and of a workflow: as they stand there, their commands are a gate of a checkout."""

import shlex
import shutil
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from vllm_omni_errors.audit import Audit, review
from vllm_omni_errors.audit.command import audit

LEDGERS = Path(__file__).parents[2] / "ledgers"
DECISION = {"raise": "internal", "except": "keep", "response": "unavailable"}


def example(name: str) -> Any:
    return yaml.safe_load((LEDGERS / "examples" / name).read_text())


def steps() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = example("github-workflow.yml")["jobs"]["audit"]["steps"]
    return found


def hook() -> dict[str, Any]:
    [repository] = example("pre-commit-config.yaml")["repos"]
    found: dict[str, Any] = repository["hooks"][0]
    return found


COMMANDS = {
    "hook": hook()["entry"],
    "workflow": next(step["run"] for step in steps() if step.get("run", "").startswith("omni-errors")),
}


@pytest.fixture
def checkout(make_tree: Callable[..., Path], make_ledger: Callable[..., Path], run: Callable[..., Audit]) -> Path:
    """A checkout with a ledger where the examples look for it; every site is decided."""
    tree, folder = make_tree(), make_ledger()
    inventory = run(tree).inventory
    decisions = [
        {"fingerprint": site.fingerprint, "decision": DECISION[site.kind], "reason": "It was read."}
        for site in inventory.sites
        if site.asked
    ]
    review.decide(folder, inventory, decisions, date(2026, 1, 1))
    shutil.copytree(folder, tree / ".error-ledgers" / "vllm-omni-0.30.0")
    return tree


def called(command: str, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Result:
    program, subcommand, *arguments = shlex.split(command)
    assert (program, subcommand) == ("omni-errors", "audit")
    monkeypatch.chdir(checkout)
    return CliRunner().invoke(audit, [*arguments, "--no-cache"])


@pytest.mark.parametrize("name", COMMANDS)
def test_a_checkout_that_was_reviewed_passes(name: str, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert called(COMMANDS[name], checkout, monkeypatch).exit_code == 0


@pytest.mark.parametrize("name", COMMANDS)
def test_a_raise_that_nobody_decided_does_not(name: str, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = checkout / "vllm_omni" / "entrypoints" / "helpers.py"
    changed.write_text(changed.read_text() + "\n\ndef late():\n    raise ValueError('something new')\n")
    assert called(COMMANDS[name], checkout, monkeypatch).exit_code == 1


def test_the_workflow_uploads_what_its_command_writes(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called(COMMANDS["workflow"], checkout, monkeypatch)
    uploads = [
        step["with"].get("sarif_file") or step["with"]["path"] for step in steps() if "upload" in step.get("uses", "")
    ]
    assert uploads
    assert all((checkout / path).is_file() for path in uploads)
    assert all(step["if"] == "always()" for step in steps() if "upload" in step.get("uses", ""))


def test_the_examples_install_nothing_that_no_registry_has() -> None:
    [install] = [step["run"] for step in steps() if "pip install" in step.get("run", "")]
    assert install == 'pip install "$(ls .error-ledgers/*.whl)[tools]"'
    assert (hook()["language"], "additional_dependencies" in hook()) == ("system", False)


def test_the_examples_name_a_ledger_of_this_project() -> None:
    for command in COMMANDS.values():
        words = shlex.split(command)
        place = Path(words[words.index("--ledger") + 1])
        assert place.parts[0] == ".error-ledgers"
        assert (LEDGERS.joinpath(*place.parts[1:]) / "ledger.toml").is_file()
