"""Errors as people see them."""

import httpx
import pytest
from IPython.core.interactiveshell import InteractiveShell

from tests.client.fakes import URL
from workshop_gpu.client import Client, errors
from workshop_gpu.client.errors import BadRequest, ClientError, NotAllowed, ServerRefused, refusal


def test_ipython_shows_one_line_and_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    shell = InteractiveShell.instance()
    try:
        shell.run_cell(  # type: ignore[no-untyped-call]
            "from workshop_gpu.client.errors import QueueFull\n"
            'raise QueueFull("queue_full", "You already have 3 waiting jobs.")'
        )
    finally:
        InteractiveShell.clear_instance()
    shown = capsys.readouterr()
    assert "Too many waiting jobs: You already have 3 waiting jobs." in shown.out + shown.err
    assert "Traceback" not in shown.out + shown.err


def test_every_class_keeps_kind_message_and_facts() -> None:
    for kind, cls in errors._CLASSES.items():
        error = refusal(kind, "why", {"free_bytes": 1})
        assert type(error) is cls
        assert (error.kind, error.message, error.facts) == (kind, "why", {"free_bytes": 1})
        assert isinstance(error, ClientError)
        assert cls.title != ClientError.title


def test_an_unknown_kind_is_still_a_refusal() -> None:
    assert type(refusal("new_kind", "why")) is ServerRefused


@pytest.mark.parametrize(
    ("status", "content", "error", "words"),
    [
        (400, b'{"error": {"kind": "invalid_request", "message": "no"}}', BadRequest, "no"),
        (403, b'{"message": "Forbidden"}', NotAllowed, "token"),
        (302, b"", NotAllowed, "token"),
        (404, b"<html>", ServerRefused, "no Workshop GPU"),
        (500, b"<html>", ServerRefused, "log"),
        (200, b"<html>", ClientError, "does not understand"),
        (200, b'{"unexpected": 1}', ClientError, "does not understand"),
    ],
)
def test_answers_that_are_not_ours_are_explained(
    status: int, content: bytes, error: type[Exception], words: str
) -> None:
    transport = httpx.MockTransport(lambda request: httpx.Response(status, content=content))
    with Client(URL, "t", transport=transport) as client, pytest.raises(error, match=words):
        client.me()


@pytest.mark.parametrize(("status", "shown"), [(500, True), (503, True), (400, False)])
def test_a_fault_of_the_servers_is_shown_with_the_id_that_its_log_has(
    status: int, shown: bool
) -> None:
    told = {"error": {"kind": "new", "message": "no", "request_id": "5f0c", "free_bytes": 1}}
    transport = httpx.MockTransport(lambda request: httpx.Response(status, json=told))
    with Client(URL, "t", transport=transport) as client, pytest.raises(ServerRefused) as caught:
        client.me()
    assert ("request 5f0c" in caught.value.message) is shown
    assert caught.value.facts == {"free_bytes": 1}


def test_a_kept_connection_that_the_server_closed_is_used_once_more_for_a_question() -> None:
    answers: list[object] = [
        httpx.RemoteProtocolError("closed"),
        httpx.Response(200, json={"models": []}),
    ]

    def handle(request: httpx.Request) -> httpx.Response:
        answer = answers.pop(0)
        if isinstance(answer, httpx.Response):
            return answer
        assert isinstance(answer, Exception)
        raise answer

    with Client(URL, "t", transport=httpx.MockTransport(handle)) as client:
        assert len(client.models()) == 0


def test_every_error_has_a_kind_of_its_own() -> None:
    own = (errors.NoServer, errors.ConnectionLost, errors.ClientClosed, errors.JobCancelled)
    kinds = [cls.kind for cls in own]
    assert len(set(kinds)) == len(own)
    assert ClientError.kind not in kinds


def test_a_closed_client_says_so() -> None:
    client = Client(URL, "t", transport=httpx.MockTransport(lambda request: httpx.Response(500)))
    client.close()
    with pytest.raises(errors.ClientClosed, match=r"wg\.connect"):
        client.me()
