# SPDX-License-Identifier: Apache-2.0
"""Mutation run over the modules that everything else trusts: ``python benchmarks/mutants.py [MODULE …]``.

Needs mutmut 3 (``pip install mutmut``). Every module is mutated against its own tests alone, in a copy under
``build/mutation``, on as many processors as this process may use (``taskset``). Prints the survivors; exit code 1 if
they are 5 % or more of a module's mutants. What mutmut leaves alone, the rows of the tables, tests remove one by one:
rules of the sanitizer, rows of the catalogue.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "mutation"
TESTS = {
    "catalogue": ("test_catalogue",),
    "field_errors": ("test_field_errors", "test_convert"),
    "details": ("test_details",),
    "convert": ("test_convert",),
    "public_text": ("test_public_text",),
    "wire": ("test_wire",),
    "stage": ("test_stage",),
}
HELPERS = ("conftest.py", "record_strategies.py", "text_corpus.py", "golden")
LIMIT = 0.05
SECONDS = 1_200
SETTINGS = """
[mutmut]
source_paths=src/vllm_omni_errors
only_mutate=src/vllm_omni_errors/{module}.py
pytest_add_cli_args_test_selection={tests}
pytest_add_cli_args=
    -x
    -q
    -p
    no:cacheprovider
    --hypothesis-profile=ci
also_copy=
    pyproject.toml
"""


def prepare(module: str) -> None:
    """A copy that holds the package, and the tests of one module."""
    shutil.rmtree(WORK, ignore_errors=True)
    shutil.copytree(ROOT / "src", WORK / "src", ignore=shutil.ignore_patterns("__pycache__"))
    (WORK / "tests").mkdir()
    for name in (*HELPERS, *(f"{test}.py" for test in TESTS[module])):
        source = ROOT / "tests" / name
        if source.is_dir():
            shutil.copytree(source, WORK / "tests" / name)
        elif source.exists():
            shutil.copy(source, WORK / "tests")
    shutil.copy(ROOT / "pyproject.toml", WORK)
    tests = "".join(f"\n    tests/{test}.py" for test in TESTS[module])
    (WORK / "setup.cfg").write_text(SETTINGS.format(module=module, tests=tests))


def mutmut(*arguments: str) -> str:
    """Run mutmut in the copy; its output."""
    command = [sys.executable, "-m", "mutmut", *arguments]
    done = subprocess.run(
        command, cwd=WORK, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS
    )
    return done.stdout


def run(module: str) -> bool:
    """Mutate a module and print what survived; whether that is little enough."""
    prepare(module)
    log = mutmut("run", "--max-children", str(len(os.sched_getaffinity(0))))
    statuses = re.findall(rf"vllm_omni_errors\.{module}\.(\S+): ([\w ]+)", mutmut("results", "--all", "true"))
    if not statuses or any(status == "not checked" for _, status in statuses):
        print(f"{module}: the run did not come to its end\n{log[-3_000:]}", flush=True)
        return False
    survivors = [name for name, status in statuses if status in ("survived", "no tests", "suspicious")]
    share = len(survivors) / len(statuses)
    print(f"{module}: {len(statuses)} mutants, {len(survivors)} survive ({share:.1%})", flush=True)
    for name in survivors:
        print(f"--- {name}")
        print(
            "\n".join(
                line for line in mutmut("show", f"vllm_omni_errors.{module}.{name}").splitlines() if line[:1] in "+-"
            )
        )
    return share < LIMIT


if __name__ == "__main__":
    unknown = [name for name in sys.argv[1:] if name not in TESTS]
    if unknown:
        sys.exit(f"mutants: there is no module {unknown[0]}; the modules are {', '.join(TESTS)}.")
    results = [run(module) for module in sys.argv[1:] or TESTS]
    sys.exit(0 if all(results) else 1)
