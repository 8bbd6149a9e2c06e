"""Pictures that jobs begin with: sent, named, refused, kept."""

import hashlib
import io
import re
import struct
import uuid
import zlib

import pytest
from PIL import Image, ImageDraw

from tests.api.kernels import RunningKernel
from tests.api.people import TURBO, Person
from tests.api.room import PUPIL_TOKEN


def a_png(size=(128, 128), colour="yellow", **options):
    image = Image.new("RGB", size, colour)
    ImageDraw.Draw(image).ellipse((size[0] // 4, size[1] // 4, size[0] // 2, size[1] // 2), "red")
    return encoded(image, **options)


def a_mask():
    mask = Image.new("L", (128, 128), 0)
    mask.paste(255, (0, 0, 64, 128))
    return encoded(mask)


def encoded(image, kind="PNG", **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def sent(person, content):
    answer = person.http.post("api/inputs", content=content)
    assert answer.status_code == 201, answer.text
    return answer.json()


def pixels(person, job):
    content = person.http.get(f"api/jobs/{job['id']}/images/0").content
    return Image.open(io.BytesIO(content)).tobytes()


@pytest.fixture(scope="module")
def stranger(server):
    with Person(server, token=PUPIL_TOKEN) as pupil:
        yield pupil


def test_a_picture_is_sent_once_and_named_by_its_content(person, stranger):
    png = a_png()
    first, again = sent(person, png), sent(person, png)
    assert first == again
    assert first["id"] == hashlib.sha256(png).hexdigest()
    assert (first["width"], first["height"], first["size_bytes"]) == (128, 128, len(png))
    back = person.http.get(f"api/inputs/{first['id']}")
    assert (back.content, back.headers["Content-Type"]) == (png, "image/png")


def test_a_picture_is_its_senders_own(person, kernel, stranger):
    known = sent(person, a_png(colour="lime"))
    body = TURBO | {"start_image": known["id"]}
    with kernel.person() as other:
        for somebody in (other, stranger):
            for method, path, options in (
                ("GET", f"api/inputs/{known['id']}", {}),
                ("POST", "api/jobs", {"json": body}),
            ):
                status, error = somebody.refused(method, path, **options)
                assert (status, error["kind"]) == (404, "input_unknown")
        sent(other, a_png(colour="lime"))
        assert other.http.get(f"api/inputs/{known['id']}").status_code == 200


def test_a_job_begins_with_a_picture_and_its_record_makes_it_again(person):
    start, mask = sent(person, a_png()), sent(person, a_mask())
    plain = person.ended(person.submit(seed=3)["id"])
    begun = person.ended(person.submit(seed=3, start_image=start["id"])["id"])
    covered = person.ended(
        person.submit(seed=3, start_image=start["id"], mask=mask["id"], strength=0.75)["id"]
    )
    assert len({pixels(person, job) for job in (plain, begun, covered)}) == 3
    assert begun["params"]["strength"] == 0.7
    assert begun["steps"] == begun["step"] == 3
    names = ("start_image", "mask", "strength")
    assert [covered["params"][name] for name in names] == [start["id"], mask["id"], 0.75]
    made = {name: value for name, value in begun["params"].items() if name != "images"}
    again = person.ended(person.submit(**made)["id"])
    assert pixels(person, again) == pixels(person, begun)


def test_without_a_size_the_picture_is_as_large_as_its_beginning_as_far_as_the_model_can(person):
    for size, drawn in (
        ((96, 112), (96, 112)),
        ((100, 90), (96, 96)),
        ((1000, 500), (128, 64)),
        ((9, 2000), (16, 128)),
    ):
        start = sent(person, a_png(size))
        job = person.submit(start_image=start["id"])
        assert (job["params"]["width"], job["params"]["height"]) == drawn
        assert person.ended(job["id"])["state"] == "done"
    job = person.submit(start_image=start["id"], width=64, height=64)
    assert person.ended(job["id"])["params"]["width"] == 64


def test_a_request_with_a_beginning_may_be_sent_again_with_its_id(person):
    start = sent(person, a_png())
    body = TURBO | {"id": uuid.uuid4().hex, "start_image": start["id"]}
    answers = [person.http.post("api/jobs", json=body) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json()["params"] == answers[1].json()["params"]
    changed = body | {"strength": 0.5}
    assert person.refused("POST", "api/jobs", json=changed)[1]["field"] == "id"
    person.ended(body["id"])


def test_the_list_of_models_says_what_each_makes_pictures_from(person):
    accepts = {model["id"]: model["accepts"] for model in person.get("api/models")["models"]}
    assert accepts["shapes"] == ["text", "image"]
    assert accepts["shapes-dit"] == accepts["shapes-dit-turbo"] == ["text", "image", "mask"]


@pytest.mark.parametrize("strength", [0, -1, 1.01, 2, 0.2, "x", None])
def test_a_strength_that_makes_no_sense_is_refused_and_says_what_would(person, strength):
    start = sent(person, a_png())
    body = TURBO | {"start_image": start["id"], "strength": strength}
    if strength is None:
        body = TURBO | {"strength": 0.5}  # and nothing to begin with
    status, error = person.refused("POST", "api/jobs", json=body)
    assert (status, error["kind"], error["field"]) == (400, "invalid_request", "strength")
    if strength == 0.2:
        assert "at least 0.25" in error["message"]


def test_not_a_number_is_no_json(person):
    content = b'{"model": "shapes", "prompt": "x", "strength": NaN}'
    assert person.refused("POST", "api/jobs", content=content)[0] == 400


def test_a_mask_has_the_size_of_its_start_image_and_never_comes_alone(person):
    start, mask = sent(person, a_png()), sent(person, a_png((64, 128)))
    body = TURBO | {"start_image": start["id"], "mask": mask["id"]}
    error = person.refused("POST", "api/jobs", json=body)[1]
    assert "64 x 128 pixels and the start image 128 x 128" in error["message"]
    error = person.refused("POST", "api/jobs", json=TURBO | {"mask": mask["id"]})[1]
    assert (error["kind"], error["field"]) == ("invalid_request", "mask")
    square = sent(person, encoded(Image.new("L", (128, 128), 255)))
    body = {"model": "shapes", "prompt": "x", "start_image": start["id"], "mask": square["id"]}
    status, error = person.refused("POST", "api/jobs", json=body)
    assert (status, error["kind"]) == (422, "images_not_accepted")


def test_a_mask_that_is_black_all_over_fails_the_job_with_the_reason(person):
    start, mask = sent(person, a_png()), sent(person, encoded(Image.new("L", (128, 128), 0)))
    job = person.ended(person.submit(start_image=start["id"], mask=mask["id"])["id"])
    assert job["state"] == "failed"
    assert "black all over" in job["error"]["message"]


def moving(kind):
    frames = [Image.new("RGB", (64, 64), colour) for colour in ("red", "blue")]
    return encoded(frames[0], kind, save_all=True, append_images=frames[1:])


def bomb():
    """A PNG whose header promises 60000 x 60000 pixels."""

    def chunk(name, data):
        body = name + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


REFUSED = {
    "nothing": (b"", "no picture"),
    "text": (b"a red circle", "no picture"),
    "markup": (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "no picture"),
    "GIF": (encoded(Image.new("P", (64, 64)), "GIF"), "no picture"),
    "TIFF": (encoded(Image.new("RGB", (64, 64)), "TIFF"), "no picture"),
    "a cut PNG": (a_png()[:20], "no picture|cannot be read"),
    "a moving PNG": (moving("PNG"), "moves"),
    "a moving WebP": (moving("WEBP"), "moves"),
    "a bomb": (bomb(), "too many pixels"),
    "too large": (encoded(Image.new("L", (8000, 5010))), "too many pixels"),
    "a dot": (encoded(Image.new("L", (4, 400))), "too few"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_picture_to_begin_with_is_refused_at_the_door(person, name):
    content, problem = REFUSED[name]
    status, error = person.refused("POST", "api/inputs", content=content)
    assert (status, error["kind"], error["field"]) == (400, "invalid_request", "image")
    assert re.search(problem, error["message"]), error["message"]


def test_a_body_of_30_mb_is_refused(person):
    status, error = person.refused("POST", "api/inputs", content=b"\x89PNG" + bytes(30_000_000))
    assert (status, error["kind"], error["limit_bytes"]) == (413, "request_too_large", 25_000_000)


@pytest.mark.parametrize("kind", ["JPEG", "WEBP"])
def test_photos_in_other_formats_are_taken_as_their_exif_turns_them(person, kind):
    exif = Image.Exif()
    exif[0x0112] = 6
    content = encoded(Image.new("RGB", (112, 96), "red"), kind, exif=exif)
    known = sent(person, content)
    assert (known["width"], known["height"]) == (96, 112)
    assert person.http.get(f"api/inputs/{known['id']}").headers["Content-Type"] == (
        f"image/{kind.lower()}"
    )
    job = person.ended(person.submit(start_image=known["id"])["id"])
    assert (job["state"], job["params"]["height"]) == ("done", 112)


def test_a_picture_that_is_cut_off_fails_the_job_and_says_so(person):
    whole = encoded(Image.effect_noise((128, 128), 90), "JPEG")
    known = sent(person, whole[: len(whole) // 2])
    job = person.ended(person.submit(start_image=known["id"])["id"])
    assert (job["state"], job["error"]["kind"]) == ("failed", "invalid_request")
    assert "cannot be read to its end" in job["error"]["message"]


@pytest.mark.parametrize("name", ["nonsense", "0" * 64, "..%2F..%2Fetc%2Fpasswd"])
def test_an_id_of_nothing_is_unknown(person, name):
    assert person.refused("GET", f"api/inputs/{name}")[1]["kind"] == "input_unknown"
    error = person.refused("POST", "api/jobs", json=TURBO | {"start_image": name})[1]
    assert (error["kind"], error["field"]) == ("input_unknown", "start_image")


def test_a_new_kernel_of_a_notebook_may_begin_with_what_the_old_one_did(server):
    with RunningKernel(server, "begins.ipynb") as kernel, kernel.person() as owner:
        start = sent(owner, a_png(colour="pink"))
        job = owner.ended(owner.submit(start_image=start["id"], seed=1)["id"])
    with RunningKernel(server, "begins.ipynb") as kernel, kernel.person() as heir:
        assert heir.http.get(f"api/inputs/{start['id']}").status_code == 200
        again = heir.ended(heir.submit(start_image=start["id"], seed=1)["id"])
        assert pixels(heir, again) == pixels(heir, job)
