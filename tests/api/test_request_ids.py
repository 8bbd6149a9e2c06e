"""An answer's id, by which the instructor finds in the log what a participant shows."""

import pytest

from tests.api.people import Person
from tests.api.room import STUMBLING_TOKEN

HEADER = "X-Request-ID"


@pytest.mark.parametrize("path", ["api/me", "api/jobs/nonsense", "api/nothing", "v1/models"])
def test_every_answer_has_an_id_and_each_another_one(person, path):
    ids = {person.http.get(path).headers[HEADER] for _ in range(3)}
    assert len(ids) == 3
    assert all(ids)


def test_an_id_that_came_with_the_request_is_that_of_the_answer_and_of_the_error(person):
    answer = person.http.get("api/jobs/nonsense", headers={HEADER: "mine-7"})
    assert answer.headers[HEADER] == answer.json()["error"]["request_id"] == "mine-7"


@pytest.mark.parametrize("own", ["", "x" * 65, "two words", "caf\xe9"])
def test_an_id_that_is_long_or_cannot_be_shown_is_not_taken(person, own):
    answer = person.http.get("api/me", headers={HEADER: own.encode("latin-1")})
    assert answer.headers[HEADER] not in ("", own)
    assert answer.headers[HEADER].isalnum()


def test_the_log_has_a_fault_of_the_servers_with_its_id_and_cause(server):
    with Person(server, token=STUMBLING_TOKEN) as somebody:
        status, error = somebody.refused("GET", "api/me")
    assert (status, error["kind"]) == (500, "server_error")
    assert "stumbled" not in error["message"]
    line = next(each for each in server.log_text().splitlines() if error["request_id"] in each)
    assert "the authorizer stumbled" in line
