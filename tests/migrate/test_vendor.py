# SPDX-License-Identifier: Apache-2.0
"""The library as a part of vLLM-Omni: complete, and without what no server runs."""

import ast
import tomllib
from pathlib import Path

import pytest

from vllm_omni_errors.migrate import vendor
from vllm_omni_errors.migrate.rewrite import tidy
from vllm_omni_errors.migrate.vendor import library_files, vendored

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    return library_files()


def vendored_text(text: str) -> str:
    return vendored({"module.py": text})["module.py"]


def imported(path: str, text: str) -> set[str]:
    """Modules that a vendored file imports, absolute, with the names: each of which may be a module too."""
    package = path.removesuffix(".py").split("/")[:-1]
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *(node.module or "").split(".")]).rstrip(".")
            found |= {f"{module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from vllm_omni_errors.wire import decode\n", "from vllm_omni.errors.wire import decode\n"),
        ("from vllm_omni_errors import install\n", "from vllm_omni.errors.transports.http import install\n"),
        ("from vllm_omni_errors import convert as c\n", "from vllm_omni.errors import convert as c\n"),
        (
            "from vllm_omni_errors import OmniClientError, convert, to_details\n",
            "from vllm_omni.errors import convert\nfrom vllm_omni.errors.convert import to_details\n"
            "from vllm_omni.errors.exceptions import OmniClientError\n",
        ),
        (
            "def late():\n    from vllm_omni_errors.upstream import replacement\n\n    return replacement\n",
            "def late():\n    from vllm_omni.errors.upstream import replacement\n\n    return replacement\n",
        ),
        ('name = "vllm_omni_errors"\n', 'name = "vllm_omni.errors"\n'),
        ('said = f"{name}: this version of vllm-omni-errors"\n', 'said = f"{name}: this version of vLLM-Omni"\n'),
        ('kept = "vllm_omni_errors_request"\n', 'kept = "vllm_omni_errors_request"\n'),
    ],
)
def test_imports_go_to_where_a_name_is_defined_and_words_follow(before, after):
    use = "\n\nuse(install, c, convert, decode, OmniClientError, to_details)\n"
    got, expected = tidy([vendored_text(before + use), after + use])
    assert got == expected


def test_what_does_not_name_the_library_stays_byte_for_byte():
    odd = "import  os\r\nx = 'a'  # vllm_omni\r\n"
    assert vendored_text(odd) == odd


def test_layout_of_its_own_stays():
    assert vendored_text("from vllm_omni_errors.wire import decode\nx   = 'a'\n").endswith("\nx   = 'a'\n")


def test_a_plain_import_of_the_package_is_refused():
    with pytest.raises(ValueError, match="only `from vllm_omni_errors import` can be vendored"):
        vendored_text("import vllm_omni_errors.wire\n")


def test_every_import_of_the_vendored_library_is_vendored_too(files):
    modules = {path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in files}
    defined = {
        f"{path.removesuffix('.py').replace('/', '.')}.{name}"
        for path, text in files.items()
        for node in ast.parse(text).body
        for name in names(node)
    }
    for path, text in files.items():
        wanted = {name for name in imported(path, text) if name.startswith(("vllm_omni.errors", "tests.errors"))}
        assert wanted <= modules | defined, path
        assert "import vllm_omni_errors" not in text
        assert "from vllm_omni_errors" not in text


def names(node: ast.stmt) -> list[str]:
    """What a statement of a module defines or imports."""
    targets = {
        ast.Assign: lambda: [target.id for target in node.targets if isinstance(target, ast.Name)],
        ast.AnnAssign: lambda: [node.target.id],
        ast.ImportFrom: lambda: [alias.asname or alias.name for alias in node.names],
        ast.If: lambda: [name for part in (*node.body, *node.orelse) for name in names(part)],
        ast.Try: lambda: [name for part in node.body for name in names(part)],
    }
    return targets.get(type(node), lambda: [node.name] if hasattr(node, "name") else [])()


def test_only_what_runs_in_a_server_is_vendored(files):
    modules = {Path(path).relative_to(vendor.FOLDER).parts[0] for path in files if path.startswith(vendor.FOLDER)}
    assert {"convert.py", "exceptions.py", "stage.py", "transports", "wire.py"} <= modules
    assert not modules & {"audit", "migrate", "probe", "report", "cli.py", "ledgers.py", "__init__.py"}
    tools = {"click", "httpx", "jinja2", "libcst", "packaging", "PIL", "rich", "ruff"}
    for path, text in files.items():
        if path.startswith(vendor.FOLDER):
            assert not tools & {name.partition(".")[0] for name in imported(path, text)}, path


def test_vendored_files_have_the_upstream_style(files):
    assert dict(zip(files, tidy(list(files.values())), strict=True)) == files


def test_tests_need_no_dependency_that_vllm_omni_lacks(files):
    own = {"hypothesis", "inline_snapshot", "vllm_omni_rig"}
    for path, text in files.items():
        assert not own & {name.partition(".")[0] for name in imported(path, text)}, path


def test_wheel_carries_the_tests_that_are_vendored():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    place = "vllm_omni_errors/migrate/bundled/tests/"
    assert {key: value for key, value in included.items() if value.startswith(place)} == {
        f"tests/{name}": place + name for name in vendor.TESTS
    }


def test_coroutines_are_marked_for_pytest_asyncio(files):
    """Its mode where they are vendored may be the strict one, which runs only what is marked."""
    coroutines = [
        [ast.unparse(decorator) for decorator in node.decorator_list]
        for path, text in files.items()
        if path.startswith(vendor.TESTS_FOLDER)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]
    assert coroutines
    assert all("pytest.mark.asyncio" in decorators for decorators in coroutines)
