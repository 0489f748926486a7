# SPDX-License-Identifier: Apache-2.0
"""What a migration is going to change, and why it refuses to."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot
from synthetic_tree import ALL, DOOR, FILES, LICENCE, WHEEL_FILES, Enter, Leave, Look

from vllm_omni_errors.migrate import manifest as manifests
from vllm_omni_errors.migrate import plan as plans
from vllm_omni_errors.migrate.plan import NOTICE, add_notice, make_plan, remove_notice
from vllm_omni_errors.migrate.rewrite import PHASES
from vllm_omni_errors.migrate.source import MigrationError, open_source

NOTICE_HERE = NOTICE.format(version="1.2", phases="bridge, requests")


@pytest.fixture(autouse=True)
def _fixed_version(monkeypatch):
    monkeypatch.setattr(manifests, "library_version", lambda: "1.2")


def planned(tree, phase=None, rewrites=ALL):
    with open_source(str(tree)) as source:
        return make_plan(source, phase=phase, rewrites=rewrites)


def refused(tree, phase=None, rewrites=ALL):
    with pytest.raises(MigrationError) as caught:
        planned(tree, phase, rewrites)
    return caught.value


def migrated(tree, make_tree, name, **options):
    """The tree with the plan carried out."""
    with open_source(str(tree)) as source:
        files = {entry.path: source.read(entry.path) for entry in source.entries}
    files.update({change.path: change.after for change in planned(tree, **options).changes})
    return make_tree(files, name)


def test_only_named_files_change_and_each_carries_the_notice(make_tree):
    plan = planned(make_tree())
    assert [change.path for change in plan.changes] == [
        "vllm_omni/door.py",
        "vllm_omni/house/window.py",
        manifests.PATH,
    ]
    assert plan.changes[0].after.decode() == snapshot("""\
# SPDX-License-Identifier: Apache-2.0
# Copyright of somebody
# This file was changed by vllm-omni-errors 1.2: it is not vLLM-Omni's original.
# Phases: bridge, requests.
\"\"\"A door.\"\"\"


def enter():
    return greet("you")


def leave():
    return part("you")
""")
    assert plan.changes[1].after.decode() == snapshot("""\
# This file was changed by vllm-omni-errors 1.2: it is not vLLM-Omni's original.
# Phases: requests.
def look():
    return greet('glass') + greet('frame')
""")
    assert plan.reasons["Enter"] == "Doors greet, they do not say hello."


def test_the_plan_does_not_depend_on_the_number_of_processes(make_tree, monkeypatch):
    tree = make_tree()
    plans_made = []
    for cpus in ({0}, {0, 1, 2}):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cpus=cpus: cpus)
        plans_made.append(planned(tree))
    assert plans_made[0] == plans_made[1]


def test_phase_takes_the_phases_up_to_it(make_tree):
    plan = planned(make_tree(), phase="bridge")
    assert plan.phases == plan.new_phases == ("bridge",)
    assert [row.rewrite for row in plan.rewrites] == ["Enter"]
    assert "bye" in plan.changes[0].after.decode()


def test_unknown_phase_is_refused_with_the_names(make_tree):
    assert (
        refused(make_tree(), phase="nonsense").next_step
        == "The phases are bridge, requests, stages, transports, finalize."
    )


def test_everything_that_does_not_match_is_listed(make_tree):
    class Gone(Enter):
        function = "nowhere"

    class TooMany(Look):
        hits = 1

    class TooFew(Look):
        hits = 3

    class NoFile(Enter):
        module = "gone.py"

    error = refused(make_tree(), rewrites=(Gone, TooMany, TooFew, NoFile, Leave))
    assert [(u.rewrite, u.path, u.function, u.expected, u.found, u.reason) for u in error.unmatched] == snapshot(
        [
            ("Gone", "vllm_omni/door.py", "nowhere", 1, 0, "its place is missing"),
            ("NoFile", "vllm_omni/gone.py", "enter", 1, 0, "there is no such file"),
            ("TooMany", "vllm_omni/house/window.py", "look", 1, 2, "its place is ambiguous"),
            ("TooFew", "vllm_omni/house/window.py", "look", 3, 0, "its place is missing"),
        ]
    )
    assert error.reason == "4 rewrites do not match a vLLM-Omni of unknown version"
    assert "written for vLLM-Omni 0.30.0" in error.next_step


def test_what_matched_is_listed_beside_it_and_the_last_phase_that_is_safe(make_tree):
    class TooMany(Look):
        hits = 1

    error = refused(make_tree(), rewrites=(Enter, Leave, TooMany))
    assert [(m.rewrite, m.phase, m.path, m.function, m.places) for m in error.matched] == [
        ("Enter", "bridge", "vllm_omni/door.py", "enter", 1),
        ("Leave", "requests", "vllm_omni/door.py", "leave", 1),
    ]
    assert error.next_step.endswith(" All of --phase bridge matches here.")
    assert planned(make_tree(), phase="bridge", rewrites=(Enter, Leave, TooMany)).new_phases == ("bridge",)


def test_of_two_with_one_name_in_one_place_only_the_one_that_does_not_match_is_listed(make_tree):
    later = type("Leave", (Leave,), {"hits": 2})
    error = refused(make_tree(), rewrites=(Leave, later))
    assert [(row.rewrite, row.places) for row in error.matched] == [("Leave", 1)]
    assert [(row.rewrite, row.expected, row.found) for row in error.unmatched] == [("Leave", 2, 0)]


def test_no_phase_is_safe_if_the_first_does_not_match(make_tree):
    class Gone(Enter):
        function = "nowhere"

    assert "--phase" not in refused(make_tree(), rewrites=(Gone, Leave)).next_step


def test_too_few_places_are_told_from_none(make_tree):
    class TooFew(Look):
        hits = 3

    (row,) = refused(make_tree(), rewrites=(TooFew,)).unmatched
    assert (row.expected, row.found, row.reason) == (3, 2, "some of its places are missing")


def test_mismatch_names_the_version(make_tree):
    tree = make_tree({**FILES, "PKG-INFO": b"Version: 0.31.0\n", "vllm_omni/door.py": b""})
    assert "do not match vLLM-Omni 0.31.0" in refused(tree).reason


def test_other_version_that_matches_is_migrated_with_a_note(make_tree):
    plan = planned(make_tree({**FILES, "PKG-INFO": b"Version: 0.31.0\n"}))
    assert plan.notes == (
        "The rewrites are written for vLLM-Omni 0.30.0; this is vLLM-Omni 0.31.0, and every one found its place.",
    )
    assert planned(make_tree({**FILES, "PKG-INFO": b"Version: 0.30.0\n"})).notes == ()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"# \xff\n" + DOOR.encode(), "the file is not UTF-8"),
        (b"\n\n\n" + DOOR.encode() + b"# \xff\n", f"the file is not UTF-8 (byte {len(DOOR) + 5})"),
        (b"# coding: latin-1\n" + DOOR.encode(), "encoded as iso-8859-1"),
        (b"# coding: nonsense\n" + DOOR.encode(), "the file is not UTF-8"),
        (b"def enter(:\n", "the file does not parse"),
    ],
)
def test_file_that_cannot_be_read_as_python_is_a_mismatch(make_tree, content, reason):
    error = refused(make_tree({**FILES, "vllm_omni/door.py": content}))
    assert [u.rewrite for u in error.unmatched] == ["Enter", "Leave"]
    assert all(reason in u.reason for u in error.unmatched)


def test_symbolic_link_in_the_way_is_a_mismatch(make_tree, tmp_path):
    tree = make_tree()
    (tree / "vllm_omni/house").rename(tmp_path / "elsewhere")
    (tree / "vllm_omni/house").symlink_to(tmp_path / "elsewhere")
    (row,) = refused(tree).unmatched
    assert row.rewrite == "Look"
    assert "vllm_omni/house is a symbolic link" in row.reason


def test_rewrite_that_fails_is_named_with_its_place(make_tree):
    class Broken(Enter):
        def on_function(self, original, updated):
            raise KeyError("oops")

    (row,) = refused(make_tree(), rewrites=(Broken,)).unmatched
    assert "KeyError at test_plan.py:" in row.reason


def test_rewrite_whose_outcome_does_not_compile_is_refused(make_tree):
    class Rubbish(Look):
        new = "break"

    (row,) = refused(make_tree(), rewrites=(Rubbish,)).unmatched
    assert row.reason.startswith("after the rewrites the file does not compile: invalid syntax")


def test_rewrite_without_effect_leaves_the_file_alone(make_tree):
    class Same(Enter):
        new = "hello"

    plan = planned(make_tree(), rewrites=(Same,))
    assert [change.path for change in plan.changes] == [manifests.PATH]


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_byte_order_mark_and_newlines_are_kept(make_tree, mark, newline):
    content = mark + DOOR.replace("\n", newline).encode()
    (change, *_) = planned(make_tree({**FILES, "vllm_omni/door.py": content})).changes
    assert change.after.startswith(mark + b"# SPDX")
    text = change.after.removeprefix(mark)
    assert b"\xef\xbb\xbf" not in text
    assert text.count(b"\n") == text.count(newline.encode())
    notice = NOTICE_HERE.replace("\n", newline).encode()
    assert text.replace(notice, b"") == content.removeprefix(mark).replace(b"hello", b"greet").replace(b"bye", b"part")


# The notice


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (LICENCE + "import os\n", LICENCE),
        ("import os\n", ""),
        ("#!/usr/bin/python\n# -*- coding: utf-8 -*-\nimport os\n", "#!/usr/bin/python\n# -*- coding: utf-8 -*-\n"),
        ("#!/usr/bin/python\n\n" + LICENCE + "\nimport os\n", "#!/usr/bin/python\n\n" + LICENCE),
        ("# adapted from somewhere\n\n" + LICENCE + "# and more\nx = 1\n", None),
        ("# just a comment\nx = 1\n", ""),
        ('"""Licence in the text."""\n# Copyright\n', ""),
        ("\n\n", ""),
        ("", ""),
    ],
)
def test_notice_stands_below_the_licence_header(text, place):
    place = "# adapted from somewhere\n\n" + LICENCE + "# and more\n" if place is None else place
    assert add_notice(text, NOTICE_HERE) == place + NOTICE_HERE + text[len(place) :]


@given(st.lists(st.sampled_from([*LICENCE.splitlines(), "", "x = 1", "#!x", "# coding: utf-8", '"""']), max_size=8))
def test_notice_can_be_taken_out_again(lines):
    for newline in ("\n", "\r\n"):
        text = newline.join([*lines, "end", ""])
        assert remove_notice(add_notice(text, NOTICE_HERE)) == text


# Migrating what is migrated


def test_own_output_is_left_alone(make_tree):
    once = migrated(make_tree(), make_tree, "once")
    again = planned(once)
    assert again.changes == again.new_phases == ()
    assert again.phases == PHASES
    assert again.notes == (
        f"Nothing to do: this vLLM-Omni was migrated by vllm-omni-errors 1.2 (phases: {', '.join(PHASES)}).",
    )


def test_earlier_phase_on_a_later_output_takes_nothing_back(make_tree):
    once = migrated(make_tree(), make_tree, "once")
    assert planned(once, phase="bridge").notes[0].endswith(f"Later phases are not taken back: {', '.join(PHASES[1:])}.")


def test_phases_one_by_one_give_the_same_as_all_at_once(make_tree):
    tree = make_tree({**WHEEL_FILES, "PKG-INFO": b"Version: 0.30.0\n"})
    once = migrated(tree, make_tree, "once")
    first = migrated(tree, make_tree, "first", phase="bridge")
    assert planned(first).new_phases == PHASES[1:]
    second = migrated(first, make_tree, "second")
    for file in once.rglob("*"):
        assert file.is_dir() or file.read_bytes() == (second / file.relative_to(once)).read_bytes()


def test_edited_output_is_refused_with_the_files(make_tree):
    once = migrated(make_tree(), make_tree, "once")
    with (once / "vllm_omni/door.py").open("a") as file:
        file.write("# mine\n")
    (once / "vllm_omni/house/window.py").unlink()
    error = refused(once)
    assert error.reason.endswith(
        "these files were edited since: vllm_omni/door.py, vllm_omni/house/window.py (missing)"
    )
    assert "from the stock" in error.next_step


def test_edited_file_that_was_not_changed_by_us_is_the_users_own_matter(make_tree):
    once = migrated(make_tree(), make_tree, "once")
    (once / "vllm_omni/__init__.py").write_text("mine = 1\n")
    assert planned(once).changes == ()


def test_output_of_other_rewrites_is_refused(make_tree):
    once = migrated(make_tree(), make_tree, "once", phase="bridge")

    class New(Enter):
        pass

    error = refused(once, rewrites=(Enter, New))
    assert "whose rewrites were not those of 1.2" in error.reason


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"3", b"\xff", b'{"format": 1, "phases": 3}'])
def test_damaged_manifest_is_refused(make_tree, content):
    assert "_errors_migration.json is damaged" in refused(make_tree({**FILES, manifests.PATH: content})).reason


def test_manifest_of_a_later_format_is_refused(make_tree):
    tree = make_tree({**FILES, manifests.PATH: json.dumps({"format": 9}).encode()})
    assert "has format 9, this version reads 1" in refused(tree).reason


def test_manifest_can_be_read_back(make_tree):
    content = planned(make_tree()).changes[-1].after
    manifest = manifests.load(content, "here")
    assert manifest.dump() == content
    assert [file.phases for file in manifest.files] == [("bridge", "requests"), ("requests",)]
    assert manifest.files[0].original_sha256 == manifests.sha256(DOOR.encode())


def test_no_rewrites_change_nothing(make_tree):
    assert [change.path for change in planned(make_tree(), rewrites=()).changes] == [manifests.PATH]


def test_real_rewrites_are_the_default(make_tree, monkeypatch):
    monkeypatch.setattr(plans.catalogue, "ALL", (Enter,))
    with open_source(str(make_tree())) as source:
        assert [row.rewrite for row in make_plan(source).rewrites] == ["Enter"]
