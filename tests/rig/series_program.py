# SPDX-License-Identifier: Apache-2.0
"""Checks out one commit of a repository after the other, compiles everything, and imports what each changed.

Arguments: the repository, its commits. The last line is a JSON object: by commit, by module, why it cannot be imported.
Each commit is imported in a child process; what that needs from elsewhere is imported once, for the later ones.
"""

import compileall
import contextlib
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

from vllm_omni_rig import environment


def imported(repository: Path, modules: list[str]) -> tuple[dict[str, str], list[str]]:
    """Import modules in a child process; returns the reasons of those that cannot be, and what else was imported."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        failed = {}
        before = set(sys.modules)
        sys.path.insert(0, str(repository))
        for module in modules:
            try:
                importlib.import_module(module)
            except BaseException as error:
                failed[module] = f"{type(error).__name__}: {error}"
        found = sys.modules["vllm_omni"].__file__
        if not str(found).startswith(str(repository)):
            failed["vllm_omni"] = f"{found} was imported"
        others = [name for name in sys.modules if name not in before and name.partition(".")[0] != "vllm_omni"]
        with open(writer, "w") as pipe:
            json.dump((failed, others), pipe)
        os._exit(0)
    os.close(writer)
    with open(reader) as pipe:
        answer = pipe.read()
    os.wait()
    failed, others = json.loads(answer)
    return failed, others


def main(repository: Path, commits: list[str]) -> None:
    """Import what each commit changed."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=repository, check=True, capture_output=True, text=True).stdout

    environment.activate()
    for module in ("torch", "transformers", "vllm", "vllm.entrypoints.openai.api_server", "diffusers"):
        importlib.import_module(module)
    report = {}
    for commit in commits:
        git("checkout", "--quiet", commit)
        paths = git("show", "--format=", "--name-only", "--diff-filter=d", commit, "--", "vllm_omni/*.py").splitlines()
        modules = [path.removesuffix(".py").replace("/", ".") for path in paths]
        report[commit], others = imported(repository, modules)
        for module in others:
            with contextlib.suppress(Exception):  # the next child says what cannot be imported
                importlib.import_module(module)
        if any(name.partition(".")[0] == "vllm_omni" for name in sys.modules):
            raise RuntimeError("a commit was imported outside of a child")
        if not compileall.compile_dir(repository, quiet=1):
            report[commit]["compileall"] = "a file does not compile"
    print(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
