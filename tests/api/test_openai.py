import base64
import io
import json

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
