"""LoRA files of every kind: bad ones are refused with a reason, and the model stays as it was."""

import pickle
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.worker.bare_pipelines import bare_picture, bare_pipeline, same_pixels
from tests.worker.opening import loader, source
from tests.worker.worker_host import ASSETS, params
from workshop_gpu.conductor.lora_errors import LoraUnusable

pytestmark = pytest.mark.usefixtures("quiet_libraries")

OUTLINE = ASSETS / "loras" / "shapes-outline" / "pytorch_lora_weights.safetensors"
OF_ANOTHER = ASSETS / "loras" / "shapes-dit-outline" / "pytorch_lora_weights.safetensors"
WANTED = params(steps=2)


@pytest.fixture(scope="module")
def model() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the libraries' advice is no error of ours
        return loader().load(source(ASSETS / "shapes"), lambda *_: None)


@pytest.fixture(scope="module")
def loras() -> Any:
    from workshop_gpu.worker.loras import Loras

    return Loras()


def drawn(model: Any, loras: Any, *files: Path) -> Any:
    from workshop_gpu.worker.drawing import draw
    from workshop_gpu.worker.loras import Wanted

    with loras.on(model, [Wanted(file.stem, file, 0.7) for file in files]):
        (picture,) = draw(model, [WANTED], lambda step: None)
    return picture


def tensors() -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(OUTLINE)


def changed(target: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """The shipped LoRA's file after a change of its tensors."""
    from safetensors.torch import save_file

    found = tensors()
    change(found)
    save_file(found, target)
    return target


def first(kind: str) -> str:
    return next(name for name in tensors() if f"lora_{kind}" in name)


def rename(found: dict[str, Any], before: str, after: str) -> None:
    for name in [name for name in found if before in name]:
        found[name.replace(before, after)] = found.pop(name)


def fill(found: dict[str, Any], value: float) -> None:
    found[first("A")][0] = value


def narrow(found: dict[str, Any], kind: str) -> None:
    """One side of a layer is shorter than the model's."""
    tensor = found[first(kind)]
    found[first(kind)] = (tensor[:, :-1] if kind == "A" else tensor[:-1]).contiguous()


BAD: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "too narrow to read": (lambda found: narrow(found, "A"), "it is for another model"),
    "too narrow to write": (lambda found: narrow(found, "B"), "it is for another model"),
    "layers that are not there": (
        lambda found: rename(found, "down_blocks.0", "down_blocks.7"), "does not have"
    ),
    "a network that is not there": (
        lambda found: rename(found, "unet.", "transformer."), "does not have"
    ),
    "one layer too many": (
        lambda found: found.update({"unet.nothing.lora_A.weight": found[first("A")].clone()}),
        'changes "nothing"',
    ),
    "plain weights": (lambda found: rename(found, "lora_A", "plain"), "belongs to no LoRA"),
    "no number": (lambda found: fill(found, float("nan")), "no number"),
    "nothing": (lambda found: found.clear(), "holds no tensors"),
    "half of a pair": (lambda found: found.pop(first("B")), ""),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_does_not_fit_is_refused_and_changes_nothing(
    name: str, model: Any, loras: Any, tmp_path: Path
) -> None:
    change, problem = BAD[name]
    with pytest.raises(LoraUnusable) as caught:
        drawn(model, loras, changed(tmp_path / "bad.safetensors", change))
    assert problem in caught.value.message
    assert caught.value.facts == {"lora": "bad", "model": "small"}
    assert wrapped(model) == 0


def wrapped(model: Any) -> int:
    """Layers that are not the model's own, and marks of them."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    modules = [each for component in model.components for each in component.module.modules()]
    return sum(isinstance(each, BaseTunerLayer) for each in modules)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("pickled.safetensors", pickle.dumps({"unet": 1}), "is damaged"),
        ("cut.safetensors", OUTLINE.read_bytes()[:-100], "damaged or incomplete"),
        ("lora.pt", pickle.dumps({"unet": 1}), "is a pickle"),
        ("another.safetensors", OF_ANOTHER.read_bytes(), 'changes "transformer"'),
        ("empty.safetensors", b"", "is damaged"),
    ],
    ids=["a pickle by another name", "cut", "a pickle", "for another model", "empty"],
)
def test_a_file_that_is_no_lora_is_refused(
    name: str, content: bytes, problem: str, model: Any, loras: Any, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(LoraUnusable) as caught:
        drawn(model, loras, tmp_path / name)
    assert problem in caught.value.message
    with pytest.raises(LoraUnusable, match="not there"):
        drawn(model, loras, tmp_path / "gone.safetensors")


def test_after_a_bad_file_good_ones_and_none_draw_as_before(
    model: Any, loras: Any, tmp_path: Path
) -> None:
    plain, outlined = drawn(model, loras), drawn(model, loras, OUTLINE)
    for name in ("half of a pair", "too narrow to write"):
        with pytest.raises(LoraUnusable):
            drawn(model, loras, changed(tmp_path / "bad.safetensors", BAD[name][0]))
        assert np.array_equal(drawn(model, loras).pixels, plain.pixels)
        assert np.array_equal(drawn(model, loras, OUTLINE).pixels, outlined.pixels)


def test_few_are_kept_and_a_file_that_was_replaced_is_read_again(
    model: Any, loras: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workshop_gpu.worker import loras as module

    monkeypatch.setattr(module, "MOST_KEPT", 1)
    outlined = drawn(model, loras, OUTLINE).pixels
    copies = [Path(shutil.copy(OUTLINE, tmp_path / f"{n}.safetensors")) for n in range(3)]
    for copy in [*copies, *copies]:
        assert np.array_equal(drawn(model, loras, copy).pixels, outlined)
        (unet,) = (c.module for c in model.components if c.name == "unet")
        assert len(unet.peft_config) <= 2
    weaker = changed(tmp_path / "new", weaken)
    weaker.replace(copies[0])
    assert not np.array_equal(drawn(model, loras, copies[0]).pixels, outlined)


def weaken(found: dict[str, Any]) -> None:
    for name, tensor in found.items():
        if "lora_B" in name:
            found[name] = tensor / 2


def test_a_file_in_kohyas_form_counts_as_strongly_as_it_says(
    model: Any, loras: Any, tmp_path: Path
) -> None:
    """Other names, and an "alpha" for each layer: with half its rank it counts half."""
    import torch
    from safetensors.torch import save_file

    found: dict[str, Any] = {}
    for name, tensor in tensors().items():
        layer, _, kind = name.removeprefix("unet.").partition(".lora_")
        if "attentions" in layer and ".to_" in layer:
            start = f"lora_unet_{layer.replace('.', '_')}"
            found[f"{start}.lora_{'down' if kind[0] == 'A' else 'up'}.weight"] = tensor
            found[f"{start}.alpha"] = torch.tensor(4.0)
    assert len(found) > 10
    file = tmp_path / "kohya.safetensors"
    save_file(found, file)
    pipeline = bare_pipeline("shapes")
    pipeline.load_lora_weights(str(file), adapter_name="kohya")
    try:
        pipeline.set_adapters(["kohya"], [0.7])
        expected = bare_picture(pipeline, WANTED)
    finally:
        pipeline.unload_lora_weights()
    picture = drawn(model, loras, file)
    assert same_pixels(picture.image, expected)
    assert not np.array_equal(picture.pixels, drawn(model, loras).pixels)
