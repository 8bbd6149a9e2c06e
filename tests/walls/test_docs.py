"""The documentation names everything there is to name."""

import re
from pathlib import Path

import msgspec
import pytest

from workshop_gpu.api import errors as http
from workshop_gpu.app import WorkshopGPU
from workshop_gpu.catalogue.spec import Defaults, Limits, Memory, ModelSpec, Source
from workshop_gpu.catalogue.toml_file import parse_models
from workshop_gpu.cli import _parser
from workshop_gpu.client.widgets.beginning import StudioBeginning
from workshop_gpu.client.widgets.lora_options import StudioLoras
from workshop_gpu.client.widgets.options import StudioOptions
from workshop_gpu.client.widgets.studio import Studio

DOCS = Path(__file__).parent.parent.parent / "docs"


def page(name):
    return (DOCS / name).read_text(encoding="utf-8")


def test_every_option_of_the_server_is_explained():
    text = page("operators/configuration.md")
    for name in WorkshopGPU.class_own_traits(config=True):
        assert f"`WorkshopGPU.{name}`" in text


@pytest.mark.parametrize("struct", [ModelSpec, Source, Defaults, Limits, Memory])
def test_every_key_of_models_toml_is_explained(struct):
    text = page("operators/models-toml.md") + page("operators/placements.md")
    for field in msgspec.structs.fields(struct):
        assert f"`{field.name}`" in text, field.name


def test_the_examples_of_models_toml_have_no_mistake():
    examples = re.findall(r"```toml\n(.*?)```", page("operators/models-toml.md"), re.DOTALL)
    found = [parse_models(example) for example in examples]
    assert [read.mistakes for read in found] == [()] * len(examples)
    assert [len(read.specs) for read in found] == [3, 1]


def test_every_kind_of_error_is_explained_with_its_status():
    rows = re.findall(r"^\| (`.*) \| (\d{3}) \|", page("users/other-programs.md"), re.MULTILINE)
    told = {kind: int(status) for kinds, status in rows for kind in re.findall(r"`(\w+)`", kinds)}
    assert {kind: told.get(kind) for kind in http.STATUS} == http.STATUS


def test_every_command_is_explained():
    text = page("operators/command-line.md")
    commands = next(
        action.choices for action in _parser()._actions if isinstance(action.choices, dict)
    )
    for name in commands:
        assert f"## `workshop-gpu {name}`" in text


def test_every_trait_of_the_studio_is_explained():
    text = page("users/studio.md")
    public = {
        name
        for kind in (StudioOptions, StudioBeginning, StudioLoras, Studio)
        for name in kind.class_own_traits()
        if not name.startswith("_")
    }
    assert len(public) > 8
    assert [name for name in sorted(public) if f"`{name}`" not in text] == []


def test_every_test_that_stands_for_a_fault_of_others_exists():
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page("developers/pitfalls.md"))
    assert len(named) > 15
    for file, test in named:
        assert f"\ndef {test}(" in (DOCS.parent / file).read_text(), (file, test)


def test_every_page_is_in_the_table_of_contents():
    index = page("index.md")
    for path in DOCS.rglob("*.md"):
        name = str(path.relative_to(DOCS).with_suffix(""))
        made = name.startswith(("_build", "users/notebooks/"))  # the latter by a list of their own
        assert name == "index" or made or f"\n{name}" in index, name
