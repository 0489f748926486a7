# SPDX-License-Identifier: Apache-2.0
"""Which boundaries lead to a site, what catches it on the way, and what the client sees of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vllm_omni_errors.audit import Audit, Site
from vllm_omni_errors.audit.reach import Arrival

Make = Callable[..., Path]
Run = Callable[..., Audit]


def site(audit: Audit, function: str, kind: str = "raise", exception: str | None = None) -> Site:
    found = [
        s for s in audit.inventory.sites
        if s.function == function and s.kind == kind and exception in (None, s.exception)
    ]  # fmt: skip
    assert len(found) == 1, found
    return found[0]


def at(found: Site, kind: str) -> Arrival:
    return next(arrival for arrival in found.arrivals if arrival.boundary.kind == kind)


@pytest.fixture
def small(make_tree: Make, run: Run) -> Audit:
    return run(make_tree())


def test_a_helper_is_reached_from_the_route_and_from_the_socket(small: Audit) -> None:
    assert site(small, "parse_size").boundaries == {"route": 1, "socket": 1}


def test_the_clause_on_the_way_is_named(small: Audit) -> None:
    arrival = at(site(small, "parse_size"), "route")
    assert arrival.clauses == ("entrypoints/api_server.py:21 except ValueError: raises HTTPException 400",)
    assert (arrival.today, arrival.guesses) == (400, ())


def test_a_socket_that_answers_itself_has_no_status(small: Audit) -> None:
    arrival = at(site(small, "parse_size"), "socket")
    assert (arrival.today, arrival.outcome) == (None, "an error event, or a message to another process")
    assert arrival.caught_by == "entrypoints/api_server.py:29 except Exception"


def test_a_type_that_no_clause_catches_is_rendered_by_vllm(small: Audit) -> None:
    assert at(site(small, "convert"), "route").today == 500


def test_a_method_is_found_through_return_annotation_and_constructor(small: Audit) -> None:
    arrival = at(site(small, "Orchestrator.submit"), "route")
    assert arrival.steps == (
        "entrypoints/api_server.py:create_image",
        "entrypoints/serving.py:Serving.generate",
        "engine/orchestrator.py:Orchestrator.submit",
    )
    assert arrival.guesses == ()


def test_a_raw_type_that_reaches_the_route_has_upstreams_status(small: Audit) -> None:
    assert at(site(small, "Serving.generate"), "route").today == 400


def test_an_error_response_that_a_route_returns_is_a_200(small: Audit) -> None:
    assert site(small, "create_image", "response").today == (200,)


def test_code_that_no_request_reaches_is_not_asked_about(small: Audit) -> None:
    found = site(small, "fuse")
    assert (found.boundaries, found.request_path, found.asked) == ({}, "no", False)


def test_every_site_of_the_entrypoints_is_asked_about_wherever_it_is_reached_from(make_tree: Make, run: Run) -> None:
    audit = run(make_tree({"entrypoints/lost.py": "def f():\n    raise ValueError('nobody calls this function')\n"}))
    assert site(audit, "f").asked


def route(body: str, rest: str = "", *, is_async: bool = True) -> dict[str, str]:
    lines = "\n".join("    " + line for line in body.splitlines())
    text = f"from fastapi import APIRouter\nrouter = APIRouter()\n{rest}\n@router.get('/x')\n"
    return {"entrypoints/openai/app.py": f"{text}{'async ' if is_async else ''}def route(request):\n{lines}\n"}


def arrivals(make_tree: Make, run: Run, files: dict[str, str], function: str) -> list[Arrival]:
    return list(site(run(make_tree(only=files)), function).arrivals)


@pytest.mark.parametrize(
    ("exception", "status"),
    [
        ("ValueError('x')", 400),
        ("UnicodeDecodeError('x')", 400),
        ("OverflowError('x')", 400),
        ("NotImplementedError('x')", 501),
        ("RuntimeError('x')", 500),
        ("KeyError('x')", 500),
        ("HTTPException(418, 'x')", 418),
        ("HTTPException(status_code=HTTPStatus.CONFLICT, detail='x')", 409),
        ("VLLMNotFoundError('x')", 404),
    ],
)
def test_status_of_what_reaches_a_route(make_tree: Make, run: Run, exception: str, status: int) -> None:
    [found] = arrivals(make_tree, run, route(f"raise {exception}"), "route")
    assert found.today == status


def test_a_status_that_is_computed_is_not_guessed(make_tree: Make, run: Run) -> None:
    [found] = arrivals(make_tree, run, route("raise HTTPException(status(request), 'x')"), "route")
    assert found.today is None


@pytest.mark.parametrize(
    ("clause", "today"),
    [
        ("except KeyError:\n    raise HTTPException(404, 'x')", 400),
        ("except (KeyError, ValueError):\n    raise HTTPException(404, 'x')", 404),
        ("except Exception:\n    raise", 400),
        ("except ValueError:\n    raise\nexcept Exception:\n    raise HTTPException(404, 'x')", 400),
        ("except:\n    return create_error_response('x', status_code=422)", 422),
        ("except ValueError as e:\n    return create_error_response(e)", 400),
        ("except Exception:\n    log()", None),
    ],
)
def test_the_first_clause_that_matches_decides(make_tree: Make, run: Run, clause: str, today: int | None) -> None:
    files = route(f"try:\n    f()\n{clause}", "def f():\n    raise ValueError('what is wrong here')\n")
    [found] = arrivals(make_tree, run, files, "f")
    assert found.today == today


def test_a_raise_in_a_clause_is_not_caught_by_its_own_statement(make_tree: Make, run: Run) -> None:
    body = (
        "try:\n    pass\nexcept KeyError:\n    raise ValueError('x')\n"
        "except ValueError:\n    raise HTTPException(404, 'x')"
    )
    audit = run(make_tree(only=route(body)))
    assert site(audit, "route", exception="ValueError").today == (400,)


def test_a_class_of_the_tree_is_caught_as_its_parent(make_tree: Make, run: Run) -> None:
    rest = "class Wrong(ValueError):\n    pass\ndef f():\n    raise Wrong('x')\n"
    files = route("try:\n    f()\nexcept ValueError:\n    raise HTTPException(404, 'x')", rest)
    assert [found.today for found in arrivals(make_tree, run, files, "f")] == [404]


def test_a_function_that_makes_the_exception_tells_its_type(make_tree: Make, run: Run) -> None:
    rest = "class Wrong(ValueError):\n    pass\ndef make() -> Wrong:\n    return Wrong()\ndef f():\n    raise make()\n"
    audit = run(make_tree(only=route("f()", rest)))
    found = site(audit, "f")
    assert (found.exception, found.raw, found.today) == ("(variable)", True, (400,))


def test_a_task_is_a_boundary_of_its_own(make_tree: Make, run: Run) -> None:
    rest = "async def work():\n    raise ValueError('what is wrong here')\n"
    files = route("try:\n    asyncio.create_task(work())\nexcept ValueError:\n    raise HTTPException(404, 'x')", rest)
    [found] = arrivals(make_tree, run, files, "work")
    assert (found.boundary.kind, found.today) == ("job", None)


def test_a_generator_of_a_route_is_a_stream(make_tree: Make, run: Run) -> None:
    rest = "async def events():\n    yield 1\n    raise ValueError('what is wrong here')\n"
    [found] = arrivals(make_tree, run, route("return StreamingResponse(events())", rest), "events")
    assert (found.boundary.kind, found.guesses) == ("stream", ("whether the headers are sent by then",))


def test_a_method_known_by_its_name_alone_is_a_guess(make_tree: Make, run: Run) -> None:
    rest = "class Engine:\n    def generate_picture(self):\n        raise ValueError('what is wrong here')\n"
    [found] = arrivals(make_tree, run, route("anything().generate_picture()", rest), "Engine.generate_picture")
    assert found.guesses == ("generate_picture is matched by its name alone",)


def test_a_name_that_many_classes_have_is_not_guessed(make_tree: Make, run: Run) -> None:
    rest = "".join(f"class E{n}:\n    def generate_picture(self):\n        raise ValueError('x')\n" for n in range(4))
    audit = run(make_tree(only=route("anything().generate_picture()", rest)))
    assert site(audit, "E0.generate_picture").boundaries == {}


def test_an_override_is_reached_through_its_base(make_tree: Make, run: Run) -> None:
    rest = (
        "class Base:\n    def go(self):\n        pass\n"
        "class Special(Base):\n    def go(self):\n        raise ValueError('x')\n"
        "def pick() -> Base:\n    return Special()\n"
    )
    [found] = arrivals(make_tree, run, route("pick().go()", rest), "Special.go")
    assert found.guesses == ("go may be one of 2 implementations",)


def test_A07_a_pydantic_validator_is_reached_and_marked(make_tree: Make, run: Run) -> None:  # noqa: N802
    rest = (
        "class Body(BaseModel):\n    @field_validator('size')\n    def check(cls, value):\n"
        "        raise ValueError('the size is wrong')\n"
    )
    audit = run(make_tree(only=route("Body(**request)", rest)))
    found = site(audit, "Body.check")
    assert (found.validator, found.boundaries) == (True, {"route": 1})


def test_A05_a_clause_lists_what_it_catches(make_tree: Make, run: Run) -> None:  # noqa: N802
    rest = (
        "def deep():\n    raise ValueError('what is wrong deep down')\n"
        "def f():\n    deep()\n    raise KeyError('x')\n"
        "def g():\n    try:\n        deep()\n    except ValueError:\n        pass\n"
    )
    audit = run(
        make_tree(only=route("try:\n    f()\n    g()\nexcept ValueError:\n    raise HTTPException(400, 'x')", rest))
    )
    assert site(audit, "route", "except").catches == (site(audit, "deep").fingerprint,)


def test_a_clause_lists_the_client_errors_that_reparenting_takes_from_it(make_tree: Make, run: Run) -> None:
    files: dict[str, Any] = {
        "errors.py": "class OmniClientError(ValueError):\n    pass\n",
        "other/code.py": (
            "from vllm_omni.errors import OmniClientError\n"
            "def check():\n    raise OmniClientError('this is the client')\n"
            "def f():\n    try:\n        check()\n    except ValueError:\n        pass\n"
        ),
    }
    audit = run(make_tree(only=files))
    found = site(audit, "f", "except")
    assert (found.client_errors, found.asked) == ((site(audit, "check").fingerprint,), True)


def test_recursion_ends(make_tree: Make, run: Run) -> None:
    rest = "def a():\n    b()\n    raise ValueError('x')\ndef b():\n    a()\n"
    audit = run(make_tree(only=route("try:\n    a()\nexcept ValueError:\n    raise HTTPException(404, 'x')", rest)))
    assert site(audit, "a").today == (404,)


def test_a_class_that_is_its_own_parent_ends(make_tree: Make, run: Run) -> None:
    audit = run(make_tree(only=route("A().f()", "class A(B):\n    pass\nclass B(A):\n    pass\n")))
    assert audit.inventory.files > 0


def test_A07_the_validators_of_a_routes_body_are_reached(make_tree: Make, run: Run) -> None:  # noqa: N802
    text = (
        "class Body(BaseModel):\n    @model_validator(mode='after')\n    def check(self):\n"
        "        raise ValueError('the size is wrong')\n"
        "@router.post('/x')\nasync def route(body: Body):\n    pass\n"
    )
    found = site(run(make_tree(only={"entrypoints/openai/app.py": text})), "Body.check")
    assert found.boundaries == {"route": 1}


def test_a_statement_around_catches_what_the_inner_one_does_not(make_tree: Make, run: Run) -> None:
    body = (
        "try:\n    try:\n        f()\n    except KeyError:\n        pass\n"
        "except ValueError:\n    raise HTTPException(404, 'x')"
    )
    [found] = arrivals(make_tree, run, route(body, "def f():\n    raise ValueError('what is wrong here')\n"), "f")
    assert found.today == 404
