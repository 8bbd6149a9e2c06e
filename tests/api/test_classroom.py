"""News, history, the message to all, raised hands, export and kernels, on a real server."""

import json
import zipfile
from io import BytesIO

import pytest

from tests.api.kernels import RunningKernel
from tests.api.people import Person
from tests.api.room import PUPIL_TOKEN

MARKUP = "<img src=x onerror=alert(1)> & 1"


def test_everybody_reads_the_instructors_message_until_it_is_taken_back(person, kernel):
    with kernel.person() as pupil:
        stream = pupil.events()
        assert next(stream)[1]["status"]["message"] is None
        made = person.http.post("api/message", json={"text": f" {MARKUP}\nline 2 "})
        assert made.status_code == 201
        told = next(event for _, event in stream if event["event"] == "message")
        assert told["message"]["text"] == f"{MARKUP}\nline 2"
        assert told["message"]["who"] == person.get("api/me")["name"]
        assert pupil.get("api/status")["message"] == told["message"]
        assert person.http.delete("api/message").status_code == 204
        assert next(e for _, e in stream if e["event"] == "message")["message"] is None
        assert pupil.get("api/status")["message"] is None
    actions = [entry["action"] for entry in person.get("api/audit")["entries"][:2]]
    assert actions == ["took the message back", "told everybody"]


@pytest.mark.parametrize("text", ["", "  \n ", "x" * 501, "bell\x07", "null\x00", 7, None])
def test_a_message_that_is_none_is_refused(person, text):
    status, error = person.refused("POST", "api/message", json={"text": text})
    assert (status, error["kind"]) == (400, "invalid_request")
    assert person.get("api/status")["message"] is None


def test_a_raised_hand_is_seen_by_its_owner_and_instructors_alone(server, person, kernel):
    with kernel.person() as pupil, Person(server, token=PUPIL_TOKEN) as other:
        watching = person.events()
        next(watching)
        call = pupil.http.post("api/help", json={"text": MARKUP}).json()
        assert (call["name"], call["notebook"]) == ("faces", "faces.ipynb")
        assert call["mine"]
        seen = next(event for _, event in watching if event["event"] == "help")
        assert seen["raised"]
        assert (seen["call"]["text"], seen["call"]["mine"]) == (MARKUP, False)
        again = pupil.http.post("api/help").json()
        assert again["at"] == call["at"], "a hand that is up keeps its place"
        assert [each["participant"] for each in person.get("api/help")["calls"]] == [kernel.id]
        assert pupil.get("api/status")["help"][0]["participant"] == kernel.id
        assert other.get("api/help")["calls"] == other.get("api/status")["help"] == []
        (row,) = [
            each
            for each in person.get("api/participants")["participants"]
            if each["id"] == kernel.id
        ]
        assert row["help"] == ""
        assert person.http.delete(f"api/help/{kernel.id}").status_code == 204
        assert next(e for _, e in watching if e["event"] == "help" and not e["raised"])
        status, error = pupil.refused("DELETE", "api/help")
        assert (status, error["kind"]) == (404, "no_help_asked")


def test_a_hand_goes_down_with_its_kernel(server, person):
    with RunningKernel(server, "gone.ipynb") as kernel, kernel.person() as pupil:
        pupil.http.post("api/help").raise_for_status()
        kernel.restart()
        assert person.get("api/help")["calls"], "who restarts a kernel may need help all the more"
    assert person.get("api/help")["calls"] == []


def test_the_last_half_hour_is_there_for_whoever_comes(person):
    person.ended(person.submit()["id"])
    history = person.get("api/history")
    assert history["every_s"] == 10
    first = history["points"][0]
    assert set(first["used_bytes"]) == {"cpu:0"}
    later = person.get(f"api/history?after={history['points'][-1]['at']}")
    assert len(later["points"]) <= 1
    for nonsense in ("soon", "nan", "inf", ""):
        status, _ = person.refused("GET", f"api/history?after={nonsense}")
        assert status == 400


def test_what_happened_is_told_in_words(person):
    person.evict("shapes")
    stream = person.events()
    next(stream)
    person.http.post("api/models/shapes/load").raise_for_status()
    person.until(lambda event: person.slots().get("shapes") == "ready")
    person.evict("shapes")
    texts = []
    for _, event in stream:
        if event["event"] == "news" and event["news"]["model"] == "shapes":
            texts.append(event["news"]["text"])
        if texts and "evicted" in texts[-1]:
            break
    assert texts[0].startswith("shapes was loaded on cpu:0 in ")
    assert "MB of shapes evicted (asked by the instructor)" in texts[-1]
    kept = [item["text"] for item in person.get("api/status")["news"]]
    assert kept.index(texts[-1]) < kept.index(texts[0]), "newest first"


def test_memory_is_named_by_who_works_with_it(person):
    stream = person.events()
    next(stream)
    job = person.submit()["id"]
    me, names = person.get("api/me")["name"], []
    while me not in names:
        event = next(stream)[1]
        if event["event"] == "device":
            holders = event["device"]["holders"]
            names = [each["name"] for each in holders if each["kind"] == "working"]
    assert names.count(me) == 1
    person.ended(job)


def unzipped(person, path):
    answer = person.http.get(path).raise_for_status()
    assert answer.headers["Content-Type"] == "application/zip"
    return zipfile.ZipFile(BytesIO(answer.content))


def test_the_pictures_of_all_leave_as_a_zip_a_folder_for_each(server, person, kernel):
    with kernel.person() as pupil:
        job = pupil.ended(pupil.submit(seed=5, images=2)["id"])
        mine = unzipped(pupil, "api/export?mine=1")
        everything = unzipped(person, "api/export")
        one = unzipped(person, f"api/export?participant={kernel.id}")
    assert {name.split("/")[0] for name in mine.namelist()} == {"faces"}
    assert mine.namelist() == one.namelist()
    assert set(mine.namelist()) <= set(everything.namelist())
    (made,) = [
        each
        for each in json.loads(mine.read("faces/pictures.json"))
        if each["job"] == job["id"] and each["seed"] == 6
    ]
    assert made["prompt"] == job["params"]["prompt"]
    assert mine.read(f"faces/{made['file']}").startswith(b"\x89PNG")
    assert person.get("api/audit")["entries"][0]["action"] == "exported pictures"


def test_who_has_no_pictures_is_told_so_and_others_pictures_are_not_ones_own(server, kernel):
    with Person(server, "somebody without pictures") as new:
        status, error = new.refused("GET", "api/export?mine=1")
        assert (status, error["kind"]) == (404, "no_pictures")
    with kernel.person() as pupil:
        for path in ("api/export", "api/export?mine=0", "api/export?participant=user:ann"):
            assert pupil.refused("GET", path)[0] == 403


def test_the_instructor_restarts_a_kernel_and_is_told_what_goes(server, person):
    with RunningKernel(server, "stuck.ipynb") as kernel:
        assert kernel.value("globals().setdefault('x', 7)") == 7
        with kernel.person() as pupil:
            pupil.hold("shapes")
        (row,) = [each for each in person.get("api/kernels")["kernels"] if each["id"] == kernel.id]
        assert (row["name"], row["notebook"]) == ("stuck", "stuck.ipynb")
        assert row["holds"] == ["shapes"]
        assert row["restart_loses"] == ["all variables of the notebook", "1 hold on models"]
        after = person.http.post(f"api/kernels/{kernel.id}/restart").raise_for_status().json()
        assert after["holds"] == []
        kernel.reconnect()
        assert kernel.value("'x' in globals()") is False
        entry = person.get("api/audit")["entries"][0]
        assert (entry["action"], entry["subject"]) == ("restarted a kernel", kernel.id)
        assert "1 hold" in entry["details"]["lost"]


def test_a_kernel_that_does_not_run_cannot_be_restarted(person):
    status, error = person.refused("POST", "api/kernels/nobody/restart")
    assert (status, error["kind"]) == (404, "kernel_unknown")


@pytest.mark.parametrize("body", [{"text": "x" * 201}, {"text": 7}, {"about": "x"}, [], "help"])
def test_a_call_for_help_that_makes_no_sense_is_refused(person, body):
    status, error = person.refused("POST", "api/help", json=body)
    assert (status, error["kind"]) == (400, "invalid_request")
    assert person.get("api/help")["calls"] == []


def test_who_leaves_in_the_middle_of_an_export_leaves_nothing_behind(server, person):
    person.ended(person.submit()["id"])
    before = len(server.log_text())
    with person.http.stream("GET", "api/export") as answer:
        assert answer.status_code == 200
        assert next(answer.iter_raw()).startswith(b"PK")
    with unzipped(person, "api/export?mine=1") as zipped:
        assert zipped.testzip() is None
    assert "Traceback" not in server.log_text()[before:]
