# SPDX-License-Identifier: Apache-2.0
"""Checks out one commit of a repository after the other, compiles everything, and imports what each changed.

Arguments: the repository, its commits. The last line is a JSON object: by commit, by module, why it cannot be imported.
What does not depend on the commit is imported once; each commit is imported in a child of that process.
"""

import compileall
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

from vllm_omni_rig import environment


def imported(repository: Path, modules: list[str]) -> dict[str, str]:
    """Import modules in a child process; returns the reasons of those that cannot be."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        failed = {}
        sys.path.insert(0, str(repository))
        for module in modules:
            try:
                importlib.import_module(module)
            except BaseException as error:
                failed[module] = f"{type(error).__name__}: {error}"
        found = sys.modules["vllm_omni"].__file__
        if not str(found).startswith(str(repository)):
            failed["vllm_omni"] = f"{found} was imported"
        os.write(writer, json.dumps(failed).encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as pipe:
        answer = pipe.read()
    os.wait()
    return dict(json.loads(answer))


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
        report[commit] = imported(repository, [path.removesuffix(".py").replace("/", ".") for path in paths])
        if not compileall.compile_dir(repository, quiet=1):
            report[commit]["compileall"] = "a file does not compile"
    print(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
