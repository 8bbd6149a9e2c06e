import base64
import io
import json

import numpy as np
import openai
import pytest
from PIL import Image


@pytest.fixture
def client(server):
    with openai.OpenAI(
        base_url=f"{server.url}workshop-gpu/v1", api_key=server.token, max_retries=0
    ) as client:
        yield client


def picture(data):
    return Image.open(io.BytesIO(base64.b64decode(data.b64_json)))


def test_the_openai_package_draws_images(client):
    answer = client.images.generate(
        model="shapes-dit-turbo",
        prompt="a red circle on a blue background",
        n=2,
        size="128x128",
        response_format="b64_json",
    )
    assert len(answer.data) == 2
    first, second = (picture(data) for data in answer.data)
    assert first.size == second.size == (128, 128)
    assert first.tobytes() != second.tobytes()
    record = json.loads(first.text["workshop_gpu"])
    assert record["model"] == "shapes-dit-turbo"


def test_an_address_is_given_unless_data_is_asked_for(client, person):
    answer = client.images.generate(prompt="a green star", model="shapes-dit-turbo", size="auto")
    png = person.http.get(answer.data[0].url)
    assert png.headers["Content-Type"] == "image/png"


def test_their_other_fields_are_ignored_and_ours_may_be_sent_along(client):
    answer = client.images.generate(
        prompt="a green star",
        model="shapes-dit-turbo",
        quality="hd",
        style="vivid",
        user="ann",
        response_format="b64_json",
        extra_body={"seed": 7, "nonsense": {"deep": True}},
    )
    assert json.loads(picture(answer.data[0]).text["workshop_gpu"])["params"]["seed"] == 7


def test_without_a_model_the_first_one_offered_draws(client, person):
    answer = client.images.generate(prompt="a heart", n=None, response_format="b64_json")
    record = json.loads(picture(answer.data[0]).text["workshop_gpu"])
    assert record["model"] == person.get("api/models")["models"][0]["id"]


def test_the_models_are_listed(client):
    assert "shapes" in [model.id for model in client.models.list()]


@pytest.mark.parametrize(
    ("fields", "error", "code", "param"),
    [
        ({"model": "gpt-image-1"}, openai.NotFoundError, "model_unknown", None),
        ({"size": "7x7"}, openai.BadRequestError, "invalid_request", "width"),
        ({"size": "big"}, openai.BadRequestError, "invalid_request", "size"),
        ({"n": 0}, openai.BadRequestError, "invalid_request", "images"),
        ({"prompt": ""}, openai.BadRequestError, "invalid_request", "prompt"),
        ({"response_format": "bmp"}, openai.BadRequestError, "invalid_request", "response_format"),
    ],
)
def test_errors_have_their_shape(client, fields, error, code, param):
    with pytest.raises(error) as refused:
        client.images.generate(**{"model": "shapes", "prompt": "a heart"} | fields)
    assert (refused.value.code, refused.value.param) == (code, param)
    assert refused.value.type == "invalid_request_error"


def test_a_wrong_key_is_refused_in_their_shape(server):
    client = openai.OpenAI(base_url=f"{server.url}workshop-gpu/v1", api_key="x", max_retries=0)
    with client, pytest.raises(openai.PermissionDeniedError):
        client.models.list()


def test_what_this_server_does_not_have_is_told_in_their_shape(client):
    with pytest.raises(openai.NotFoundError) as refused:
        client.chat.completions.create(model="shapes", messages=[])
    assert refused.value.code == "not_found"


def test_a_field_of_theirs_that_is_an_abyss_is_no_json(person):
    body = b'{"prompt": "a heart", "user": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    status, error = person.refused("POST", "v1/images/generations", content=body)
    assert (status, error["code"]) == (400, "not_json")


# edits


def form_file(image, name="image.png"):
    file = io.BytesIO()
    image.save(file, "PNG")
    return (name, file.getvalue(), "image/png")


START = Image.new("RGB", (128, 128), "yellow")


def test_the_openai_package_edits_a_picture(client):
    answer = client.images.edit(
        model="shapes-dit-turbo",
        image=form_file(START),
        prompt="a red circle on a yellow background",
        n=2,
        size="128x128",
        response_format="b64_json",
        extra_body={"seed": 4, "strength": 0.75, "background": "auto"},
    )
    first, second = (picture(data) for data in answer.data)
    assert first.tobytes() != second.tobytes()
    params = json.loads(first.text["workshop_gpu"])["params"]
    assert (params["seed"], params["strength"], params["mask"]) == (4, 0.75, "")
    assert params["start_image"]


def edited(client, **fields):
    answer = client.images.edit(
        prompt="a red circle on a yellow background",
        response_format="b64_json",
        extra_body={"seed": 4},
        **fields,
    )
    return picture(answer.data[0])


def test_what_is_transparent_in_the_mask_or_else_in_the_picture_is_drawn_anew(client):
    half = START.convert("RGBA")
    half.paste((0, 0, 0, 0), (0, 0, 64, 128))
    covered = edited(client, image=form_file(START), mask=form_file(half))
    record = json.loads(covered.text["workshop_gpu"])
    assert record["model"] == "shapes-dit", "the first that takes a mask"
    assert record["params"]["mask"]
    right = np.asarray(covered, float)[:, 80:] - np.asarray(START, float)[:, 80:]
    assert np.abs(right).mean() < 12
    own = edited(client, image=[form_file(half)], model="shapes-dit-turbo")
    assert json.loads(own.text["workshop_gpu"])["params"]["mask"] == record["params"]["mask"]


def refused(client, **fields):
    with pytest.raises(openai.APIStatusError) as caught:
        edited(client, **fields)
    return caught.value.code, caught.value.param


def test_edits_that_cannot_be_are_refused_in_their_shape(client, person):
    start, small = form_file(START), form_file(Image.new("RGBA", (64, 64), (0, 0, 0, 0)))
    assert refused(client, image=("a.png", b"no picture")) == ("invalid_request", "image")
    assert refused(client, image=start, mask=start) == ("invalid_request", "mask")
    assert refused(client, image=start, mask=small) == ("invalid_request", "mask")
    assert refused(client, image=[start, start]) == ("invalid_request", "image")
    assert refused(client, image=start, size="huge") == ("invalid_request", "size")
    assert refused(client, image=start, n=10**6) == ("invalid_request", "images")
    assert refused(client, image=start, model="nobody")[0] == "model_unknown"
    clear = form_file(Image.new("RGBA", (128, 128), (0, 0, 0, 0)))
    assert refused(client, image=clear, model="shapes")[0] == "images_not_accepted"
    status, error = person.refused("POST", "v1/images/edits", data={"prompt": "x"})
    assert (status, error["param"]) == (400, "image")
    form = {"prompt": "x", "n": "many"}
    status, error = person.refused("POST", "v1/images/edits", data=form, files={"image": start})
    assert (status, error["param"]) == (400, "n")
