"""The trainer, tiny, on a CPU: from nothing to folders that load."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import train_models
from safetensors.torch import load_file
from shape_models.context import Context
from shape_models.networks import encode_text
from shape_models.optimizer import FlatOptimizer, Settings
from shape_models.plan import RELEASE, SMOKE
from shape_models.training import Clock, Schedule, StoppedEarly, Training
from torch import Tensor, nn


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all stages and assets of one smoke run."""
    folder = tmp_path_factory.mktemp("smoke")
    arguments = ["--smoke", "--device", "cpu", "--folder", str(folder / "stages")]
    assert train_models.main([*arguments, "--assets", str(folder / "assets")]) == 0
    return folder


@pytest.mark.parametrize(
    ("name", "classes"),
    [
        ("shapes", "StableDiffusionPipeline"),
        ("shapes-dit", "StableDiffusion3Pipeline"),
        ("shapes-dit-turbo", "StableDiffusion3Pipeline"),
    ],
)
def test_the_trainer_makes_folders_that_load_and_draw(smoke: Path, name: str, classes: str) -> None:
    from diffusers import DiffusionPipeline

    pipe = DiffusionPipeline.from_pretrained(smoke / "assets" / name)
    pipe.set_progress_bar_config(disable=True)
    assert type(pipe).__name__ == classes
    picture = pipe("a red star", num_inference_steps=2, guidance_scale=2.0).images[0]
    assert picture.size == (128, 128)


@pytest.mark.parametrize("name", ["shapes", "shapes-dit"])
def test_the_trainer_makes_adapters_that_load(smoke: Path, name: str) -> None:
    from diffusers import DiffusionPipeline

    pipe = DiffusionPipeline.from_pretrained(smoke / "assets" / name)
    pipe.load_lora_weights(smoke / "assets" / "loras" / f"{name}-outline")
    assert pipe.get_active_adapters() == ["default_0"]


def test_a_stage_whose_result_is_there_is_not_run_again(
    smoke: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stages = smoke / "stages"
    before = {file.name: file.stat().st_mtime_ns for file in stages.glob("*.safetensors")}
    assert train_models.main(["--smoke", "--device", "cpu", "--folder", str(stages)]) == 0
    after = {file.name: file.stat().st_mtime_ns for file in stages.glob("*.safetensors")}
    assert before == after
    assert capsys.readouterr().out.count("already there") == len(train_models.STAGES)


def test_no_stage_leaves_a_pickle_or_a_checkpoint_behind(smoke: Path) -> None:
    left = {file.name for file in (smoke / "stages").iterdir()}
    assert left == {f"{name}.safetensors" for name in train_models.STAGES} | {"seconds.json"}


def test_the_turbo_transformer_reads_its_ticks_as_the_other_reads_its_timesteps(
    smoke: Path,
) -> None:
    from diffusers import SD3Transformer2DModel

    base, turbo = (
        SD3Transformer2DModel.from_pretrained(smoke / "assets" / name / "transformer").float()
        for name in ("shapes-dit", "shapes-dit-turbo")
    )
    pooled = torch.zeros(4, base.config.pooled_projection_dim)
    ticks = torch.tensor([4.0, 3.0, 2.0, 1.0])
    expected = base.time_text_embed(250 * ticks, pooled)
    assert torch.allclose(turbo.time_text_embed(ticks, pooled), expected, atol=2e-2)
    assert not torch.allclose(base.time_text_embed(ticks, pooled), expected, atol=2e-2)


def test_our_text_arithmetic_is_transformers_own(smoke: Path) -> None:
    from transformers import CLIPTextModelWithProjection

    folder = smoke / "assets" / "shapes-dit" / "text_encoder"
    model = CLIPTextModelWithProjection.from_pretrained(folder)
    context = Context(SMOKE, smoke, torch.device("cpu"), Clock(None))
    vocabulary = context.vocabulary
    ids = torch.from_numpy(vocabulary.encode("a red star on a blue background"))[None].long()
    ours = encode_text(model, ids, vocabulary.end)
    theirs = model(ids, output_hidden_states=True)
    assert torch.allclose(ours.penultimate, theirs.hidden_states[-2], atol=1e-5)
    assert torch.allclose(ours.pooled, theirs.text_embeds, atol=1e-5)


class _Over(Clock):
    """A clock whose time is over from the start."""

    def __init__(self) -> None:
        super().__init__(None)

    def is_over(self) -> bool:
        return True


def _train(folder: Path, clock: Clock) -> dict[str, Tensor]:
    """A small regression over three legs; raises StoppedEarly after each leg if time is over."""
    torch.manual_seed(0)
    layer = nn.Linear(4, 4)
    optimizer = FlatOptimizer({"layer": layer}, torch.device("cpu"), Settings())

    def loss_of() -> tuple[Tensor, Tensor]:
        inputs = torch.randn(8, 4)
        loss = (layer(inputs) - inputs.flip(1)).pow(2).mean()
        return loss, loss.detach()

    Training("line", optimizer, loss_of, Schedule(600, 1e-2), 3, folder, clock).run()
    return optimizer.export()


def test_a_training_stopped_between_legs_ends_with_the_same_bits(tmp_path: Path) -> None:
    whole = _train(tmp_path, Clock(None))
    for done in (250, 500):
        with pytest.raises(StoppedEarly) as stopped:
            _train(tmp_path, _Over())
        assert stopped.value.done == done
    pieced = _train(tmp_path, _Over())
    assert all(torch.equal(whole[name], pieced[name]) for name in whole)
    assert list(tmp_path.iterdir()) == []


def test_the_optimizer_learns() -> None:
    torch.manual_seed(1)
    layer = nn.Linear(6, 6)
    optimizer = FlatOptimizer({"layer": layer}, torch.device("cpu"), Settings())

    def loss_of() -> tuple[Tensor, Tensor]:
        inputs = torch.randn(32, 6)
        loss = (layer(inputs) - 2 * inputs).pow(2).mean()
        return loss, loss.detach()

    first = float(loss_of()[1])
    optimizer.rate.fill_(0.02)
    for _ in range(300):
        optimizer.step(loss_of)
    assert float(loss_of()[1]) < first / 20


def test_the_learning_rate_rises_holds_and_falls() -> None:
    schedule = Schedule(100, 1.0, warm=0.1, hold=0.5, floor=0.1)
    rates = [schedule.rate(step) for step in range(100)]
    assert rates[:10] == sorted(rates[:10])
    assert set(rates[10:50]) == {1.0}
    assert rates[50:] == sorted(rates[50:], reverse=True)
    assert 0.1 <= rates[-1] < 0.11


def test_every_released_weight_comes_from_the_plan_s_sizes() -> None:
    """The plan in the repository is the one that the shipped transformer was trained with."""
    assets = Path(__file__).parents[2] / "workshop_gpu" / "catalogue" / "assets"
    weights = load_file(assets / "shapes-dit/transformer/diffusion_pytorch_model.safetensors")
    width = RELEASE.sizes.dit_heads * RELEASE.sizes.dit_head_width
    patch = RELEASE.sizes.dit_patch
    assert weights["pos_embed.proj.weight"].shape == (width, 16, patch, patch)
