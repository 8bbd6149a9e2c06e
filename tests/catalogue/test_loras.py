"""LoRAs in models.toml and on the disk: what is offered, and every mistake with its line."""

import os
import pickle
from pathlib import Path

import pytest

from tests.catalogue.on_disk import safetensors
from workshop_gpu.catalogue.catalogue import Catalogue
from workshop_gpu.catalogue.loras import OfferedLora, shipped_loras
from workshop_gpu.catalogue.template import TEMPLATE
from workshop_gpu.catalogue.toml_file import parse_models

MODEL = '[[model]]\nid = "a"\nsource = { folder = "x" }\n'


def mistakes(text: str) -> list[str]:
    return [mistake.text("models.toml") for mistake in parse_models(MODEL + text).mistakes]


def test_a_good_entry_gives_a_lora() -> None:
    text = '[[lora]]\nid = "ink"\nfile = "ink.safetensors"\nmodels = ["a"]\nscale = 0.8\n'
    read = parse_models(MODEL + text)
    assert read.mistakes == ()
    (lora,) = read.loras
    assert (lora.id, lora.file, lora.models, lora.scale) == ("ink", "ink.safetensors", ("a",), 0.8)


def test_the_template_offers_the_shipped_ones() -> None:
    read = parse_models(TEMPLATE)
    assert read.mistakes == ()
    assert read.loras == shipped_loras()


def test_a_shipped_one_may_be_for_a_model_of_another_name() -> None:
    text = '[[lora]]\nid = "o"\nshipped = "shapes-outline"\nmodels = ["a"]\n'
    (lora,) = parse_models(MODEL + text).loras
    assert lora.models == ("a",)
    assert lora.file == shipped_loras()[0].file


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ('id = "b"\nmodels = ["a"]', 'line 4: file is missing: file = "….safetensors"'),
        ('id = "b"\nfile = "f"', 'line 4: models is missing: models = ["…"]'),
        ('id = "b"\nfile = "f"\nmodels = []', "line 7: models names no model"),
        ('id = "b"\nfile = "f"\nmodels = ["c"]', 'line 7: there is no model "c" in this file'),
        ('id = "b"\nfile = "f"\nmodels = "a"', "line 7: models must be a list of texts, not text"),
        ('id = "b"\nfile = ""\nmodels = ["a"]', "line 6: file is the path"),
        ('id = "a b"\nfile = "f"\nmodels = ["a"]', 'line 5: id "a b" must be'),
        ('id = "b"\nfile = "f"\nmodels = ["a"]\nscale = 3', "line 8: scale must be from -2 to 2"),
        ('id = "b"\nfile = "f"\nmodels = ["a"]\nscale = nan', "line 8: scale must be from -2 to 2"),
        ('id = "b"\nfile = "f"\nmodels = ["a"]\nscal = 1', '"scal" (did you mean "scale"?)'),
        ('id = "b"\nshipped = "x"', "line 6: shipped is one of shapes-outline, shapes-dit-outline"),
        (
            'id = "b"\nshipped = "shapes-outline"\nfile = "f"\nmodels = ["a"]',
            "line 7: write either",
        ),
    ],
)
def test_each_mistake_is_told_with_its_line(entry: str, said: str) -> None:
    found = mistakes(f"[[lora]]\n{entry}\n")
    assert any(said in mistake for mistake in found), found
    assert parse_models(f"{MODEL}[[lora]]\n{entry}\n").loras == ()


def test_two_of_one_name_and_other_tables_are_mistakes() -> None:
    entry = '[[lora]]\nid = "b"\nfile = "f"\nmodels = ["a"]\n'
    assert mistakes(entry + entry) == ['models.toml line 9: a second LoRA "b" (the first: line 4)']
    assert "[[lora]] tables" in mistakes('[lora]\nid = "b"\n')[0]
    assert 'did you mean "lora"' in mistakes(entry.replace("[[lora]]", "[[loras]]"))[0]


def offered(folder: Path, file: str, **options: tuple[Path, ...]) -> OfferedLora:
    (folder / "models.toml").write_text(
        f'{MODEL}[[lora]]\nid = "b"\nfile = "{file}"\nmodels = ["a"]\n'
    )
    catalogue = Catalogue(folder / "models.toml", **options)
    catalogue.load()
    assert catalogue.problems == ()
    (lora,) = catalogue.loras_for("a")
    assert catalogue.lora("b") == lora
    assert catalogue.loras_for("none") == ()
    return lora


def test_a_file_is_found_beside_models_toml_with_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "b.safetensors").write_bytes(safetensors())
    found = offered(tmp_path, "b.safetensors")
    assert (found.path, found.problem) == (str(tmp_path / "b.safetensors"), "")
    assert found.file_bytes > 0


def test_what_cannot_be_used_says_why(tmp_path: Path) -> None:
    (tmp_path / "c.safetensors").write_bytes(pickle.dumps({}))
    assert "no safetensors file" in offered(tmp_path, "c.safetensors").problem
    assert "pickle" in offered(tmp_path, "c.pt").problem
    assert "is no .safetensors file" in offered(tmp_path, "c.gguf").problem
    assert "No such file" in offered(tmp_path, "gone.safetensors").problem


def test_a_file_outside_of_the_folders_for_models_is_refused_links_followed(
    tmp_path: Path,
) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "b.safetensors").write_bytes(safetensors())
    assert offered(inside, "b.safetensors", roots=(inside,)).problem == ""
    os.symlink(outside / "b.safetensors", inside / "link.safetensors")
    for file in ("link.safetensors", "../out/b.safetensors", str(outside / "b.safetensors")):
        assert "outside of the folders" in offered(inside, file, roots=(inside,)).problem


def test_a_replaced_file_is_seen_as_a_change(tmp_path: Path) -> None:
    (tmp_path / "b.safetensors").write_bytes(safetensors())
    offered(tmp_path, "b.safetensors")
    catalogue = Catalogue(tmp_path / "models.toml")
    catalogue.load()
    assert not catalogue.changed()
    (tmp_path / "b.safetensors").unlink()
    assert catalogue.changed()
