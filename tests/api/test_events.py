from base64 import b64decode

from tests.api.people import Person


def is_done(event, job):
    found = event["job"] if event["event"] == "job" else {"id": ""}
    return found["id"] == job["id"] and found["state"] == "done"


def slots_until(stream, model, state):
    """What is told of a model's slot until it comes into a state."""
    told = []
    for _, event in stream:
        if event["event"] == "slot" and event["slot"]["model"] == model:
            told.append(event["slot"])
            if told[-1]["state"] == state:
                return told


def test_the_stream_starts_with_all_there_is(person):
    _, event = next(person.events())
    assert event["event"] == "snapshot"
    assert {model["id"] for model in event["models"]} >= {"shapes", "shapes-dit"}
    assert event["status"]["devices"][0]["id"] == "cpu:0"
    assert event["mine"] == []


def test_a_job_is_followed_from_its_place_in_the_queue_to_its_end(person):
    stream = person.events()
    next(stream)
    job = person.submit(model="shapes", steps=30)
    states, steps, previews = [], [], []
    for _, event in stream:
        if event["event"] == "preview" and event["job"] == job["id"]:
            previews.append(event)
        if event["event"] == "job" and event["job"]["id"] == job["id"]:
            states.append(event["job"]["state"])
            steps.append(event["job"]["step"])
            if event["job"]["state"] == "done":
                break
    assert states[0] in ("queued", "running")
    assert steps == sorted(steps)
    assert {1, 30} <= set(steps)
    assert len(set(steps)) > 3
    assert states[-2:] == ["running", "done"]
    assert previews
    assert previews[0]["data"].startswith("data:image/jpeg;base64,")


def test_a_reader_that_comes_back_reads_on_and_misses_nothing(person):
    last_id, _ = next(person.events())
    job = person.submit()
    person.ended(job["id"])
    read = []
    for event_id, event in person.events(after=last_id):
        assert event["event"] != "snapshot"
        assert event_id.rpartition("-")[0] == last_id.rpartition("-")[0]
        if event["event"] == "job" and event["job"]["id"] == job["id"]:
            read.append(event["job"]["state"])
            if event["job"]["state"] == "done":
                break
    assert read[0] in ("queued", "running")


def test_an_id_of_another_life_of_the_server_gets_a_snapshot(person):
    for after in ("0123456789ab-7", "nonsense", "-", "x-y-z"):
        assert next(person.events(after=after))[1]["event"] == "snapshot"


def test_an_id_with_a_place_that_no_log_has_gets_a_snapshot(person):
    life = next(person.events())[0].rpartition("-")[0]
    for place in ("9" * 50, "9" * 5000, "-1", "1.5"):
        assert next(person.events(after=f"{life}-{place}"))[1]["event"] == "snapshot"


def test_previews_and_prompts_are_for_their_owner_only(server, person, kernel):
    with kernel.person() as other:
        stream = other.events()
        next(stream)
        job = person.submit(model="shapes", steps=30)
        for _, event in stream:
            assert event["event"] != "preview"
            if event["event"] == "job" and event["job"]["id"] == job["id"]:
                assert event["job"]["params"] is None
                assert event["job"]["mine"] is False
                if event["job"]["state"] == "done":
                    assert event["job"]["images"] == []
                    break


def test_small_pictures_come_along_with_their_jobs_end_where_they_are_asked_for(person):
    streams = [person.events(pictures=size) for size in (2**20, 100, 0)]
    starts = [next(stream)[0] for stream in streams]
    job = person.submit(images=2)
    heard = []
    for stream in streams:
        events = []
        for event_id, event in stream:
            if event["event"] == "picture":
                events.append((event_id, event))
            if is_done(event, job):
                heard.append((event_id, events))
                break
    (end_id, pictures), *others = heard
    assert [others[0][1], others[1][1]] == [[], []]
    assert [(event["job"], event["index"]) for _, event in pictures] == [
        (job["id"], 0),
        (job["id"], 1),
    ]
    assert all(event_id != end_id for event_id, _ in pictures), "one reads on to the job's end"
    for _, event in pictures:
        file = person.http.get(f"api/jobs/{job['id']}/images/{event['index']}").content
        assert b64decode(event["png"]) == file
    for event_id, event in person.events(after=starts[0], pictures=2**20):
        if event["event"] == "picture":
            assert event_id != end_id
            break


def test_nobody_elses_pictures_come_along(person, kernel):
    with kernel.person() as other:
        stream = other.events(pictures=2**20)
        next(stream)
        job = person.submit()
        for _, event in stream:
            assert event["event"] != "picture"
            if is_done(event, job):
                break


def test_pictures_of_a_size_that_makes_no_sense_are_refused(person):
    for size in ("-1", "x", "", "2000000", "9" * 5000):
        answer = person.http.get("api/events", params={"pictures": size})
        assert (answer.status_code, answer.json()["error"]["kind"]) == (400, "invalid_request")


def weights_bytes(person):
    """What models take on the devices."""
    devices = person.get("api/status")["devices"]
    holders = [holder for device in devices for holder in device["holders"]]
    return sum(holder["bytes"] for holder in holders if holder["kind"] in ("weights", "shared"))


def test_memory_and_slots_are_told_as_they_change(server):
    with Person(server, "watcher") as watcher:
        watcher.evict("shapes-dit")
        stream = watcher.events()
        next(stream)
        watcher.http.post("api/models/shapes-dit/load").raise_for_status()
        *_, arrived, ready = slots_until(stream, "shapes-dit", "ready")
        assert (arrived["state"], arrived["done_bytes"]) == ("loading", arrived["total_bytes"])
        assert arrived["bytes_per_s"] > 0
        assert (ready["bytes"] > 10_000_000, ready["bytes_per_s"]) == (True, 0)
        before_bytes = weights_bytes(watcher)
        watcher.http.post("api/models/shapes-dit/evict").raise_for_status()
        seen = []
        for _, event in stream:
            seen.append(event)
            slot = event.get("slot", {"model": ""})
            if (slot["model"], slot.get("state")) == ("shapes-dit", "absent"):
                break
        left = seen[-1]
        # What other models share with it has stayed.
        assert 0 < left["freed_bytes"] <= ready["bytes"]
        assert left["freed_bytes"] == before_bytes - weights_bytes(watcher)
        assert left["why"]
        devices = [event["device"] for event in seen if event["event"] == "device"]
        assert devices
        for device in devices:
            held = sum(holder["bytes"] for holder in device["holders"])
            assert held + device["free_bytes"] == device["total_bytes"]
