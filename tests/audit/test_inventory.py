# SPDX-License-Identifier: Apache-2.0
"""A site keeps its identity wherever it goes in its function, and its count follows the rule."""

from collections.abc import Callable
from pathlib import Path

from vllm_omni_errors.audit import Audit, Site
from vllm_omni_errors.audit.inventory import fingerprint
from vllm_omni_errors.audit.messages import hash_of

Make = Callable[..., Path]
Run = Callable[..., Audit]
Sites = Callable[..., list[Site]]

RAISE = "def f(x):\n    raise ValueError(f'no {x} is here at all')\n"


def test_lines_and_layout_are_no_part_of_the_identity(sites_of: Sites) -> None:
    [before] = sites_of(RAISE)
    [after] = sites_of(
        "# new\n\n\ndef f(x):\n    raise ValueError(\n        f'no {x + 1} is '  # why\n        'here at all'\n    )\n"
    )
    assert (before.fingerprint, before.line, after.line) == (after.fingerprint, 2, 5)


def test_function_exception_and_message_are_the_identity(sites_of: Sites) -> None:
    prints = {
        sites_of(text)[0].fingerprint
        for text in (
            RAISE,
            RAISE.replace("def f", "def g"),
            RAISE.replace("ValueError", "TypeError"),
            RAISE.replace("here", "there"),
        )
    }
    assert len(prints) == 4


def test_the_same_once_more_in_a_function_has_a_number(sites_of: Sites) -> None:
    first, second = sites_of("def f(x):\n    raise ValueError('no')\n    raise ValueError('no')\n")
    assert (first.nth, second.nth) == (1, 2)
    assert first.fingerprint != second.fingerprint


def test_fingerprint_is_pinned() -> None:
    assert fingerprint("a.py", "f", "ValueError", hash_of("no {} here")) == "bffdd5fadd91"
    assert fingerprint("a.py", "f", "ValueError", hash_of("no {} here"), 2) == "2d71eb38efab"


def test_qualified_name_is_that_of_the_rewrites(sites_of: Sites) -> None:
    [site] = sites_of("class A:\n    def f(self):\n        def g():\n            raise ValueError('no')\n")
    assert site.function == "A.f.g"


def test_A08_twins_share_a_name(make_tree: Make, run: Run) -> None:  # noqa: N802
    other = RAISE.replace("def f", "def g").replace("ValueError", "TypeError")
    audit = run(make_tree(only={"entrypoints/a.py": RAISE, "offline/b.py": other, "c.py": "raise ValueError('no')"}))
    twins = [site.path for site in audit.inventory.sites if site.twin is not None]
    assert twins == ["entrypoints/a.py", "offline/b.py"]


def test_messages_that_say_little_are_no_twins(make_tree: Make, run: Run) -> None:
    audit = run(make_tree(only={f"{name}.py": "raise ValueError(f'{x} bad {y}')" for name in "ab"}))
    assert {site.twin for site in audit.inventory.sites} == {None}


def test_typed_and_control_flow_raises_are_not_raw(sites_of: Sites) -> None:
    sites = sites_of(
        "def f():\n    raise VLLMValidationError('x')\n    raise StopIteration\n    raise OmniClientError('y')\n"
        "    raise\n    raise KeyError('z')\n    raise HTTPException(400, 'x')\n    raise Unknown('x')\n"
    )
    assert [site.exception for site in sites if site.asked] == ["KeyError", "HTTPException", "Unknown"]


def test_a_clause_that_only_passes_on_is_not_asked_about(sites_of: Sites) -> None:
    sites = sites_of(
        "def f():\n    try:\n        g()\n    except ValueError as e:\n        log(e)\n        raise\n"
        "    except KeyError:\n        pass\n    except Exception:\n        log()\n"
    )
    assert [(site.exception, site.asked) for site in sites if site.kind == "except"] == [
        ("ValueError", False),
        ("KeyError", False),
        ("Exception", True),
    ]


def test_model_code_is_asked_about_only_where_it_checks_requests(make_tree: Make, run: Run) -> None:
    text = (
        "class SmallPipeline:\n    def forward(self, request):\n        self.check_inputs(request)\n"
        "        raise ValueError('forward')\n    def check_inputs(self, request):\n        raise ValueError('check')\n"
    )
    sites = run(make_tree(only={"diffusion/models/small/pipeline.py": text})).inventory.sites
    assert [(site.text, site.request_path, site.asked) for site in sites] == [
        ("forward", "model", False),
        ("check", "yes", True),
    ]


def test_a_file_that_does_not_parse_is_a_finding(make_tree: Make, run: Run) -> None:
    audit = run(make_tree({"entrypoints/broken.py": "def f(:\n"}))
    assert [(finding.code, finding.path) for finding in audit.findings] == [("unparsed", "entrypoints/broken.py")]
    assert audit.inventory.files == 8


def test_a_second_run_says_the_same_from_the_cache(make_tree: Make, run: Run, tmp_path: Path) -> None:
    tree = make_tree()
    first = run(tree)
    assert (tmp_path / "cache.sqlite").exists()
    assert run(tree).inventory == first.inventory


def test_the_cache_never_shows_an_older_text(make_tree: Make, run: Run) -> None:
    tree = make_tree()
    before = len(run(tree).inventory.sites)
    make_tree({"entrypoints/more.py": RAISE})
    assert len(run(tree).inventory.sites) == before + 1


def test_a_cache_that_is_no_database_is_left_aside(make_tree: Make, run: Run, tmp_path: Path) -> None:
    (tmp_path / "cache.sqlite").write_text("this is no database, whatever its name says" * 100)
    assert run(make_tree()).inventory.sites
