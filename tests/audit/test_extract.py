# SPDX-License-Identifier: Apache-2.0
"""Every form of raise, except and error answer is found, wherever it stands."""

from collections.abc import Callable

import pytest

from vllm_omni_errors.audit import Site
from vllm_omni_errors.audit.extract import extract

Sites = Callable[..., list[Site]]


def raised(text: str) -> list[str]:
    return [found.exception for found in extract("x.py", text.encode()).raises]


def said(text: bytes) -> list[str]:
    return [found.text for found in extract("x.py", text).raises]


@pytest.mark.parametrize(
    "text",
    [
        "# coding: latin-1\nx = 'éééééééé'; raise ValueError('é' + (x))\n".encode("latin-1"),
        "\ufeffraise ValueError('é' + (x))\n".encode(),
        "y\r\r\nraise ValueError('é' +\r (x))\r".encode(),
    ],
    ids=["another encoding", "a mark at the start", "lines of all systems"],
)
def test_a_message_is_read_whatever_the_files_bytes(text: bytes) -> None:
    assert said(text) == ["é<(x)>"]


@pytest.mark.parametrize("text", [b"# coding: nobody's\nraise E\n", b"# \xe9\nraise E\n", b"raise E\0\n"])
def test_a_file_that_cannot_be_decoded_is_a_problem(text: bytes) -> None:
    found = extract("x.py", text)
    assert (found.raises, found.problem is not None) == ([], True)


def caught(text: str) -> list[tuple[str, ...]]:
    return [found.types for found in extract("x.py", text.encode()).handlers]


@pytest.mark.parametrize(
    ("text", "exception"),
    [
        ("raise ValueError('x')", "ValueError"),
        ("raise ValueError", "ValueError"),
        ("raise errors.Wrong('x') from e", "Wrong"),
        ("try:\n  pass\nexcept E:\n  raise", "(bare)"),
        ("raise error", "(variable)"),
        ("raise make(x)", "(variable)"),
        ("raise table[x]('y')", "(expression)"),
        ("from builtins import ValueError as V\nraise V('x')", "ValueError"),
        ("Wrong = ValueError\nraise Wrong('x')", "ValueError"),
        ("raise _Private('x')", "_Private"),
    ],
)
def test_type_of_a_raise(text: str, exception: str) -> None:
    assert raised(text) == [exception]


@pytest.mark.parametrize(
    "text",
    [
        "if a:\n  raise E",
        "for a in b:\n  pass\nelse:\n  raise E",
        "while a:\n  raise E",
        "with a as b:\n  raise E",
        "async def f():\n  async with a:\n    async for b in c:\n      raise E",
        "match a:\n  case 1:\n    raise E",
        "match a:\n  case True | None | {'x': y} | [*z] | A(b=2.5) if c():\n    raise E",
        "try:\n  raise E\nexcept F:\n  pass",
        "try:\n  pass\nexcept F:\n  raise E",
        "try:\n  pass\nexcept F:\n  pass\nelse:\n  raise E",
        "try:\n  pass\nfinally:\n  raise E",
        "try:\n  pass\nexcept* F:\n  raise E",
        "class A:\n  class B:\n    def f(self):\n      def g():\n        raise E",
        "class A:\n  raise E",
        "if a:\n  pass\nelif b:\n  pass\nelse:\n  raise E",
    ],
)
def test_raise_is_found_in_every_statement(text: str) -> None:
    assert raised(text) == ["E"]


@pytest.mark.parametrize(
    ("clause", "types"),
    [
        ("except:", ("BaseException",)),
        ("except BaseException:", ("BaseException",)),
        ("except Exception as e:", ("Exception",)),
        ("except (Exception,):", ("Exception",)),
        ("except (ValueError, json.JSONDecodeError):", ("ValueError", "JSONDecodeError")),
        ("except* ValueError:", ("ValueError",)),
        ("except types_of(x):", ("(expression)",)),
    ],
)
def test_A03_every_form_of_except_is_counted(clause: str, types: tuple[str, ...]) -> None:  # noqa: N802
    assert caught(f"try:\n  pass\n{clause}\n  pass") == [types]


def test_A03_clauses_of_one_statement_are_counted_each() -> None:  # noqa: N802
    assert caught("try:\n  pass\nexcept A:\n  pass\nexcept B:\n  pass") == [("A",), ("B",)]


def test_A03_a_renamed_type_is_what_it_names() -> None:  # noqa: N802
    assert caught("Anything = Exception\ntry:\n  pass\nexcept Anything:\n  pass") == [("Exception",)]


@pytest.mark.parametrize(
    ("statement", "form", "status"),
    [
        ("return self.create_error_response('no')", "returned", None),
        ("return create_error_response('no', status_code=HTTPStatus.NOT_FOUND)", "returned", 404),
        ("x = self.create_error_response('no')", "built", None),
        ("return ErrorResponse(error=ErrorInfo(message='no', code=404))", "returned", 404),
        ("return JSONResponse({'error': 'no'}, status_code=400)", "json", 400),
        ("return JSONResponse(content=body, status_code=error.code)", "json", None),
        ("return Response(status_code=status.HTTP_503_SERVICE_UNAVAILABLE)", "json", 503),
        ("return {'error': {'message': 'no', 'code': 500}}", "dict", None),
        ("yield f'data: {error}\\n\\n'", "sse", None),
        ("await websocket.send_json({'type': 'error', 'message': 'no'})", "websocket", None),
        ("await self._send_error(websocket, 'no')", "websocket", None),
        ("await websocket.close(code=1008)", "websocket", None),
        ("queue.put(ErrorMessage(error='no', status_code=400))", "message", 400),
        ("return StageOutput(error=str(e), error_status_code=500)", "fields", 500),
        ("output.error = 'no'", "fields", None),
    ],
)
def test_form_of_an_error_answer(statement: str, form: str, status: int | None) -> None:
    found = extract("x.py", f"async def f(self):\n  {statement}".encode()).responses
    assert [(made.form, made.status) for made in found] == [(form, status)]


@pytest.mark.parametrize(
    "statement",
    [
        "return JSONResponse({'ok': True})",
        "return JSONResponse(content=body, status_code=200)",
        "return {'error': None}",
        "yield f'data: {chunk}\\n\\n'",
        "await websocket.send_json({'type': 'done'})",
        "await websocket.close()",
        "return StageOutput(error=None)",
    ],
)
def test_an_answer_that_is_no_error_is_none(statement: str) -> None:
    assert extract("x.py", f"async def f(self):\n  {statement}".encode()).responses == []


@pytest.mark.parametrize(
    ("body", "does"),
    [
        ("raise", [("raises", "", None)]),
        ("raise e", [("raises", "", None)]),
        ("raise HTTPException(400, 'no') from e", [("raises", "HTTPException", 400)]),
        (
            "return self.create_error_response(str(e))",
            [("breaks", "return", None), ("responds", "create_error_response", None)],
        ),
        ("log(e)", []),
    ],
)
def test_what_a_clause_does(body: str, does: list[tuple[str, str, int | None]]) -> None:
    handler = extract("x.py", f"def f():\n  try:\n    pass\n  except E as e:\n    {body}".encode()).handlers[0]
    assert [(action.what, action.detail, action.status) for action in handler.actions] == does


def test_a_clause_is_the_same_after_a_new_layout() -> None:
    first = extract("x.py", b"try:\n  pass\nexcept E as e:\n  log(e); raise A(1)").handlers[0]
    second = extract("x.py", b"try:\n  pass\n\nexcept (E) as e:\n    log( e )  # why\n    raise A(2)").handlers[0]
    third = extract("x.py", b"try:\n  pass\nexcept E as e:\n  log(e); raise B(1)").handlers[0]
    assert (first.hash == second.hash, first.hash == third.hash) == (True, False)


@pytest.mark.parametrize("text", [b"def f(:\n", b"\0", b"\xff\xfe", b"x = " + b"(" * 300 + b")" * 300])
def test_a_file_that_does_not_parse_has_a_problem(text: bytes) -> None:
    assert extract("x.py", text).problem


@pytest.mark.parametrize("text", ["", "\ufeffraise ValueError('x')", "raise ValueError(\r\n  'x'\r\n)\r\n"])
def test_a_file_with_a_mark_or_other_line_ends_parses(text: str) -> None:
    assert extract("x.py", text.encode()).problem is None
