"""What the catalogue knows of classes that cannot work in tiles or slices is so in diffusers."""

import importlib
import inspect
from typing import Any

import pytest

from workshop_gpu.catalogue.roles import WITH_SLICING, WITHOUT_TILING

diffusers: Any = importlib.import_module("diffusers")


@pytest.mark.parametrize("name", sorted(WITHOUT_TILING))
def test_a_vae_without_tiling_has_no_switch_for_it(name: str) -> None:
    assert "use_tiling" not in inspect.getsource(getattr(diffusers, name))


@pytest.mark.parametrize("name", ["AutoencoderKL", "AutoencoderKLFlux2", "AutoencoderTiny"])
def test_other_vaes_have_one(name: str) -> None:
    assert "use_tiling" in inspect.getsource(getattr(diffusers, name))


def test_only_these_networks_slice_attention() -> None:
    for name in WITH_SLICING:
        assert hasattr(getattr(diffusers, name), "set_attention_slice"), name
    for name in ("FluxTransformer2DModel", "QwenImageTransformer2DModel", "SD3Transformer2DModel"):
        assert not hasattr(getattr(diffusers, name), "set_attention_slice"), name
