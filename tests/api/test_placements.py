"""Memory settings that cannot work: refused over REST before anything moves, with the number."""

from collections.abc import Iterator

import pytest

from tests.api.people import Person
from tests.serverprocess import ServerProcess
from workshop_gpu.catalogue.shipped import ASSETS

ENTRY = """
[[model]]
id = "{id}"
source = {{ folder = "{folder}" }}
defaults = {{ steps = 1, guidance = 1.0, width = 128, height = 128 }}
memory = {{ {memory} }}
"""
SETTINGS = {
    "more-than-it-has": "virtual_vram_gb = 5",
    "no-such-gpu": 'swap_device = "cpu:7"',
    "its-own-gpu": 'swap_device = "cpu:0"',
    "more-than-a-card": "swap_space_gb = 100",
    "below-a-layer": "swap_space_gb = 0.0001",
    "smallest-card": "max_vram_gb = 0.001",
    "as-it-is": "",
}


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    place = tmp_path_factory.mktemp("placements")
    folder = ASSETS / "shapes-dit-turbo"
    entries = (
        ENTRY.format(id=model, folder=folder, memory=memory) for model, memory in SETTINGS.items()
    )
    (place / "models.toml").write_text("".join(entries))
    option = f"--WorkshopGPU.models_file={place / 'models.toml'}"
    with ServerProcess(folder=place, args=(option,)) as process, Person(process, "ann") as ann:
        ann.until_ready()
        yield ann


@pytest.mark.parametrize(
    ("model", "placement", "field", "number"),
    [
        ("more-than-it-has", "", "virtual_vram_gb", "most_bytes"),
        ("no-such-gpu", "", "swap_device", ""),
        ("its-own-gpu", "", "swap_device", ""),
        ("more-than-a-card", "", "swap_space_gb", "most_bytes"),
        ("below-a-layer", "", "swap_space_gb", "least_bytes"),
        ("smallest-card", "", "max_vram_gb", "least_bytes"),
        ("as-it-is", "turbo", "placement", ""),
    ],
)
def test_it_is_refused_with_its_field_and_the_number_that_would_do(
    person: Person, model: str, placement: str, field: str, number: str
) -> None:
    asked = {"model": model, "prompt": "a star", "placement": placement}
    status, error = person.refused("POST", "api/jobs", json=asked)
    assert (status, error["kind"], error["field"]) == (400, "invalid_placement", field)
    assert error["message"].startswith(f'{field} of "{model}": ')
    if number:
        assert error[number] > 0
    else:
        assert "cpu" in error["message"], "those that there are"
    if not placement:
        told, planned = person.refused("GET", f"api/models/{model}/plan")
        assert (told, planned["message"]) == (400, error["message"])
    assert person.slots() == {}
    assert person.get("api/jobs")["jobs"] == []
