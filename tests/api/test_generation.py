import pytest

from workshop_gpu.api.generation import complete
from workshop_gpu.api.schemas import GenerateRequest
from workshop_gpu.catalogue.spec import Defaults, Limits, ModelSpec, Source
from workshop_gpu.conductor.errors import InvalidRequest

SPEC = ModelSpec(
    id="shapes",
    source=Source(folder="there"),
    defaults=Defaults(steps=20, guidance=3.0, width=128, height=64),
    limits=Limits(max_pixels=256 * 256, max_side=512, max_steps=50, max_images=4, size_multiple=16),
)


def request(**fields):
    return GenerateRequest(**{"model": "shapes", "prompt": "a red circle"} | fields)


def test_what_is_not_said_takes_the_models_defaults():
    params = complete(request(seed=7), SPEC)
    assert (params.steps, params.guidance, params.width, params.height) == (20, 3.0, 128, 64)
    assert (params.seed, params.images, params.negative_prompt) == (7, 1, "")


def test_a_seed_that_is_not_given_is_drawn_and_known():
    seeds = {complete(request(), SPEC).seed for _ in range(5)}
    assert len(seeds) > 1
    assert all(0 <= seed < 2**32 for seed in seeds)


def test_zero_guidance_is_a_value_and_not_the_default():
    assert complete(request(guidance=0), SPEC).guidance == 0.0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("prompt", ""),
        ("prompt", "   "),
        ("prompt", "x" * 100_000),
        ("negative_prompt", "x" * 100_000),
        ("width", 7),
        ("width", 0),
        ("width", -64),
        ("height", 100_000),
        ("width", 72),
        ("steps", 0),
        ("steps", 10**9),
        ("seed", -1),
        ("seed", 2**80),
        ("images", 0),
        ("images", 5),
        ("batch", 0),
        ("batch", 10**9),
        ("place", 1),
        ("place", -1),
        ("guidance", -1.0),
        ("guidance", float("nan")),
        ("guidance", float("inf")),
    ],
)
def test_a_value_beyond_the_limits_is_refused_by_its_name(field, value):
    with pytest.raises(InvalidRequest) as refused:
        complete(request(**{field: value}), SPEC)
    assert refused.value.facts["field"] == field
    assert field in refused.value.message


def test_too_many_pixels_are_refused_though_each_side_is_allowed():
    with pytest.raises(InvalidRequest, match="262144 pixels"):
        complete(request(width=512, height=512), SPEC)
