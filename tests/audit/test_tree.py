# SPDX-License-Identifier: Apache-2.0
"""A tree is found in a checkout, as a package and in a wheel."""

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from vllm_omni_errors.audit import Audit, AuditError
from vllm_omni_errors.audit.tree import find

Make = Callable[..., Path]


def test_a_checkout_and_its_package_are_the_same(make_tree: Make) -> None:
    checkout = make_tree()
    first, second = find(checkout), find(checkout / "vllm_omni")
    assert first.files == second.files
    assert (first.package, first.prefix) == (second.package, second.prefix) == ("vllm_omni", "vllm_omni/")


def test_a_source_layout_has_its_prefix(make_tree: Make, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (make_tree() / "vllm_omni").rename(tmp_path / "other" / "vllm_omni")
    (tmp_path / "top").mkdir()
    (tmp_path / "other").rename(tmp_path / "top" / "src")
    assert find(tmp_path / "top").prefix == "src/vllm_omni/"


def test_the_version_is_that_of_the_metadata(make_tree: Make) -> None:
    checkout = make_tree()
    (checkout / "vllm_omni-1.2.3.dist-info").mkdir()
    (checkout / "vllm_omni_errors-9.dist-info").mkdir()
    assert find(checkout).version == "1.2.3"


def test_a_wheel_has_the_same_sites(make_tree: Make, run: Callable[..., Audit], tmp_path: Path) -> None:
    checkout = make_tree()
    wheel = tmp_path / "vllm_omni-1.2.3-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file in sorted(checkout.rglob("*.py")):
            archive.write(file, file.relative_to(checkout))
        archive.writestr("vllm_omni-1.2.3.dist-info/METADATA", "")
    packed = run(wheel)
    assert packed.inventory.sites == run(checkout).inventory.sites
    assert packed.inventory.version == "1.2.3"


def test_a_plain_vllm_tree_is_read_too(tmp_path: Path, run: Callable[..., Audit]) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text("raise ValueError('x')")
    assert (run(tmp_path).inventory.package, len(run(tmp_path).inventory.sites)) == ("vllm", 1)


@pytest.mark.parametrize("name", ["missing", "file.txt", "broken.whl", "empty"])
def test_what_is_no_tree_says_what_to_give(tmp_path: Path, name: str) -> None:
    place = tmp_path / name
    if name == "empty":
        place.mkdir()
    elif name != "missing":
        place.write_text("x")
    with pytest.raises(AuditError, match=name):
        find(place)
