# SPDX-License-Identifier: Apache-2.0
"""Which vLLM is good enough, and functions of it that are replaced wherever they were imported."""

import dataclasses
import logging
import subprocess
import sys
import types
from pathlib import Path

import pytest

from vllm_omni_errors import upstream

PACKAGE = Path(upstream.__file__).parent


def import_beside(vllm: dict[str, str], directory: Path) -> str:
    """What importing ``upstream`` raises beside a package ``vllm`` made of these files, or beside none."""
    for name, source in vllm.items():
        path = directory / "vllm" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    program = f"""
import importlib.abc, sys
class OnlyOurs(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "vllm" and not {bool(vllm)}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, OnlyOurs())
sys.path[:0] = [{str(directory)!r}, {str(PACKAGE.parent)!r}]
try:
    import vllm_omni_errors.upstream
except ImportError as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip()


def test_without_vllm_one_sentence_says_what_is_needed(tmp_path: Path) -> None:
    assert import_beside({}, tmp_path) == f"UpstreamError {upstream.NEEDED}, and no vLLM is installed."


def test_an_older_vllm_is_refused_in_one_sentence(tmp_path: Path) -> None:
    old = {"__init__.py": "", "exceptions.py": "class VLLMValidationError(ValueError): pass\n"}
    said = import_beside(old, tmp_path)
    assert said.startswith(f"UpstreamError {upstream.NEEDED}; the installed one is older")
    assert "VLLMClientError" in said


def test_a_vllm_that_has_no_exceptions_module_is_older(tmp_path: Path) -> None:
    said = import_beside({"__init__.py": ""}, tmp_path)
    assert said == f"UpstreamError {upstream.NEEDED}; the installed one is older: it has no vllm.exceptions."


def test_a_vllm_without_torch_is_not_called_old(tmp_path: Path) -> None:
    said = import_beside({"__init__.py": "import a_torch_that_is_missing\n"}, tmp_path)
    assert said.endswith("cannot be imported, because a_torch_that_is_missing is missing.")


# --- media connectors ---


@pytest.fixture
def connectors(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A module of a vLLM that makes connectors, with a registry that is an object."""
    module = types.ModuleType(upstream._CONNECTORS)
    module.MediaConnector = type("MediaConnector", (), dict.fromkeys(upstream._CONNECTOR_METHODS))
    module.MEDIA_CONNECTOR_REGISTRY = types.SimpleNamespace(load=lambda name: [name])
    monkeypatch.setitem(sys.modules, upstream._CONNECTORS, module)
    return module


def test_every_connector_is_shown_once_before_it_is_used(connectors: types.ModuleType) -> None:
    for mark in ("first", "second"):
        upstream.watch_media_connectors(lambda connector, mark=mark: connector.append(mark))
    assert connectors.MEDIA_CONNECTOR_REGISTRY.load("http") == ["http", "second"]


@pytest.mark.parametrize("missing", ["load_from_url_async", "fetch_audio_embedding_async"])
def test_connectors_that_are_others_refuse_the_start(connectors: types.ModuleType, missing: str) -> None:
    delattr(connectors.MediaConnector, missing)
    with pytest.raises(upstream.InstallError, match=f"they have no {missing}"):
        upstream.watch_media_connectors(print)


def test_a_registry_that_is_elsewhere_refuses_the_start(connectors: types.ModuleType) -> None:
    del connectors.MEDIA_CONNECTOR_REGISTRY
    with pytest.raises(upstream.InstallError, match="cannot be watched"):
        upstream.watch_media_connectors(print)


# --- overrides, on functions of our own ---


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A module of a vLLM, and one override of a function in it."""
    module = types.ModuleType("vllm.pretended")
    exec("def sanitize_message(message):\n    return 'upstream ' + message\n", vars(module))
    monkeypatch.setitem(sys.modules, "vllm.pretended", module)
    override = upstream.Override(
        name="sanitize_message",
        modules=("vllm.pretended.older", "vllm.pretended"),
        parameters=("message",),
        reason="it must not",
        stand_in=upstream._sanitize_message,
    )
    monkeypatch.setattr(upstream, "OVERRIDES", (override,))
    monkeypatch.setattr(upstream, "_replacements", {})
    monkeypatch.setattr(upstream, "is_upstream_module", lambda name: bool(name) and name.startswith("vllm.pretended"))
    return module


def ours(message: str) -> str:
    return "ours " + message


def test_a_reference_that_was_taken_before_is_overridden_too(module: types.ModuleType) -> None:
    taken = module.sanitize_message
    upstream.apply_overrides({"sanitize_message": ours})
    assert taken("x") == "ours x"
    assert taken is module.sanitize_message


def test_the_original_is_kept_however_often_it_is_overridden(module: types.ModuleType) -> None:
    upstream.apply_overrides({"sanitize_message": ours})
    upstream.apply_overrides({"sanitize_message": ours})
    assert upstream.original("sanitize_message")("x") == "upstream x"
    assert module.sanitize_message("x") == "ours x"


def test_a_missing_function_is_refused(module: types.ModuleType) -> None:
    del module.sanitize_message
    with pytest.raises(upstream.InstallError, match=r"sanitize_message cannot be replaced: no sanitize_message in"):
        upstream.apply_overrides({"sanitize_message": ours})


@pytest.mark.parametrize("signature", ["message, strict=False", "text", "*message", "*, message", ""])
def test_another_signature_is_refused(module: types.ModuleType, signature: str) -> None:
    exec(f"def sanitize_message({signature}):\n    return 'upstream'\n", vars(module))
    with pytest.raises(upstream.InstallError, match="its parameters are"):
        upstream.apply_overrides({"sanitize_message": ours})
    assert not hasattr(module.sanitize_message, upstream._ORIGINAL)


def test_a_closure_is_refused(module: types.ModuleType) -> None:
    exec(
        "def make(kept):\n    def sanitize_message(message):\n        return kept\n    return sanitize_message\n"
        "sanitize_message = make('x')",
        vars(module),
    )
    with pytest.raises(upstream.InstallError, match="closure"):
        upstream.apply_overrides({"sanitize_message": ours})


def test_a_second_function_of_that_name_is_refused(module: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    second = types.ModuleType("vllm.pretended.second")
    exec("def sanitize_message(message):\n    return message\n", vars(second))
    monkeypatch.setitem(sys.modules, "vllm.pretended.second", second)
    with pytest.raises(upstream.InstallError, match=r"vllm.pretended.second has a second one"):
        upstream.apply_overrides({"sanitize_message": ours})


def test_a_replacement_that_is_not_reached_is_refused(
    module: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def elsewhere(message: str) -> str:
        return "elsewhere"

    [override] = upstream.OVERRIDES
    monkeypatch.setattr(upstream, "OVERRIDES", (dataclasses.replace(override, stand_in=elsewhere),))
    with pytest.raises(upstream.InstallError, match="does not reach the replacement"):
        upstream.apply_overrides({"sanitize_message": ours})


def test_a_refusal_says_why_the_override_must_be(module: types.ModuleType) -> None:
    del module.sanitize_message
    with pytest.raises(upstream.InstallError, match="because it must not") as refusal:
        upstream.apply_overrides({"sanitize_message": ours})
    assert "update the one that is older" in str(refusal.value)


def test_a_logger_that_nobody_configured_writes_where_vllm_writes() -> None:
    logger = logging.Logger("new")
    upstream.share_logging(logger)
    assert logger.parent is logging.getLogger("vllm")


def test_a_configured_logger_is_left_alone() -> None:
    logger = logging.Logger("new")
    logger.addHandler(logging.NullHandler())
    upstream.share_logging(logger)
    assert logger.parent is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [("vllm", True), ("vllm.entrypoints.x", True), ("vllm_omni.entrypoints", False), ("mine", False), (None, False)],
)
def test_knows_vllms_own_modules(name: str | None, expected: bool) -> None:
    assert upstream.is_upstream_module(name) is expected
