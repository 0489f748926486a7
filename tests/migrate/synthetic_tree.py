# SPDX-License-Identifier: Apache-2.0
"""Small trees and wheels that look like vLLM-Omni, and rewrites of our own for them."""

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path

import libcst as cst

from vllm_omni_errors.migrate.rewrite import Rewrite

LICENCE = "# SPDX-License-Identifier: Apache-2.0\n# Copyright of somebody\n"
DOOR = LICENCE + '"""A door."""\n\n\ndef enter():\n    return hello("you")\n\n\ndef leave():\n    return bye("you")\n'
WINDOW = "def look():\n    return hello('glass') + hello('frame')\n"
FILES: Mapping[str, bytes] = {
    "vllm_omni/__init__.py": b"",
    "vllm_omni/door.py": DOOR.encode(),
    "vllm_omni/house/window.py": WINDOW.encode(),
    "vllm_omni/house/odd.bin": bytes(range(256)),
}
DIST_INFO = "vllm_omni-0.30.0.dist-info"
METADATA = (
    "Metadata-Version: 2.4\nName: vllm-omni\nVersion: 0.30.0\nSummary: made up\n"
    "Requires-Dist: first>=1\nRequires-Dist: second; extra == 'more'\nProvides-Extra: more\n\n"
    "Version: 1 is a line of the description\n"
)
WHEEL_FILES: Mapping[str, bytes] = {
    **FILES,
    f"{DIST_INFO}/METADATA": METADATA.encode(),
    f"{DIST_INFO}/WHEEL": b"Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    f"{DIST_INFO}/entry_points.txt": b"[console_scripts]\nomni-door = vllm_omni.door:enter\n",
}
WHEEL_NAME = "vllm_omni-0.30.0-py3-none-any.whl"


class _Rename(Rewrite):
    old = "hello"
    new = "greet"
    before = ""
    after = ""

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        if self.inside() and isinstance(original_node.func, cst.Name) and original_node.func.value == self.old:
            self.found += 1
            return updated_node.with_changes(func=cst.Name(self.new))
        return updated_node


class Enter(_Rename):
    """Doors greet,
    they do not say hello."""

    phase = "bridge"
    module = "door.py"
    function = "enter"


class Leave(_Rename):
    """Doors part."""

    phase = "requests"
    module = "door.py"
    function = "leave"
    old = "bye"
    new = "part"


class Look(_Rename):
    """Windows greet."""

    phase = "requests"
    module = "house/window.py"
    function = "look"
    hits = 2


ALL = (Leave, Look, Enter)


def record(files: Mapping[str, bytes], dist_info: str = DIST_INFO) -> bytes:
    """RECORD, written another way than the code under test does."""
    lines = []
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().replace("=", "")
        quoted = '"' + name.replace('"', '""') + '"' if "," in name else name
        lines.append(f"{quoted},sha256={digest},{len(content)}")
    return "\n".join([*lines, f"{dist_info}/RECORD,,", ""]).encode()


def contents(directory: Path) -> dict[str, bytes]:
    """Every file of a directory by its relative path."""
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()
    }
