"""The networks' shapes and starting weights; all are stock diffusers and transformers classes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from diffusers import AutoencoderKL, SD3Transformer2DModel, UNet2DConditionModel
from diffusers.models.downsampling import Downsample2D
from diffusers.models.resnet import ResnetBlock2D
from diffusers.models.upsampling import Upsample2D
from torch import Tensor, nn
from transformers import CLIPTextConfig, CLIPTextModelWithProjection

from shape_models.prompts import FACTS
from shape_models.tokenizer import LENGTH, Vocabulary
from shape_models.words import SIZE_PX

LATENT_CHANNELS = 16
LATENT_SIDE = SIZE_PX // 8
LATENT_SCALE = 0.18215
"""The autoencoder's `scaling_factor`: latents times this have variance 1 in each channel."""

ZERO_TOKENS = 8
"""How many tokens stand for T5's in training; see `zero_token_bias`."""


@dataclass(frozen=True)
class TextSize:
    """Width, layers and heads of one CLIP text encoder."""

    width: int
    layers: int
    heads: int


@dataclass(frozen=True)
class Sizes:
    """Every size that a smaller trial may change."""

    vae_channels: tuple[int, int, int, int] = (16, 32, 64, 64)
    unet_channels: tuple[int, int] = (64, 96)
    unet_text: TextSize = TextSize(128, 3, 4)
    dit_layers: int = 6
    dit_heads: int = 5
    dit_head_width: int = 32
    dit_patch: int = 1
    dit_text: tuple[TextSize, TextSize] = (TextSize(64, 3, 2), TextSize(96, 3, 3))

    @property
    def dit_width(self) -> int:
        """Width of the two CLIPs side by side: what the transformer reads."""
        return self.dit_text[0].width + self.dit_text[1].width


def build_vae(sizes: Sizes) -> AutoencoderKL:
    """An autoencoder that starts near a linear map: residual branches zero, the rest passing on.

    With 16 latent channels and no attention it reaches 48 dB; with 4 channels shapes stay soft.
    """
    vae = AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=sizes.vae_channels,
        layers_per_block=1,
        latent_channels=LATENT_CHANNELS,
        norm_num_groups=1,
        sample_size=SIZE_PX,
        scaling_factor=LATENT_SCALE,
        shift_factor=0.0,
        force_upcast=False,
        mid_block_add_attention=False,
    )
    for module in vae.modules():
        if isinstance(module, ResnetBlock2D):
            nn.init.zeros_(module.conv2.weight)
            nn.init.zeros_(module.conv2.bias)
            if module.conv_shortcut is not None:
                _pass_through(module.conv_shortcut, halving=False)
        elif isinstance(module, Downsample2D):
            _pass_through(module.conv, halving=True)
        elif isinstance(module, Upsample2D):
            _pass_through(module.conv, halving=False)
    return vae


def _pass_through(conv: nn.Conv2d, halving: bool) -> None:
    """Copies (or averages 2x2 of) channel j mod inputs to channel j, plus a little noise."""
    outputs, inputs, side, _ = conv.weight.shape
    assert conv.bias is not None
    with torch.no_grad():
        nn.init.normal_(conv.weight, std=0.5 / math.sqrt(inputs * side * side))
        conv.bias.zero_()
        for j in range(outputs):
            if halving:
                conv.weight[j, j % inputs, :2, :2] += 0.25
            else:
                conv.weight[j, j % inputs, side // 2, side // 2] += 1


def build_unet(sizes: Sizes) -> UNet2DConditionModel:
    """A UNet of two levels, cross attention in the lower one; its output starts at zero."""
    unet = UNet2DConditionModel(
        sample_size=LATENT_SIDE,
        in_channels=LATENT_CHANNELS,
        out_channels=LATENT_CHANNELS,
        block_out_channels=sizes.unet_channels,
        layers_per_block=2,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=sizes.unet_text.width,
        attention_head_dim=4,
        norm_num_groups=16,
    )
    nn.init.zeros_(unet.conv_out.weight)
    nn.init.zeros_(unet.conv_out.bias)
    return unet


def build_dit(sizes: Sizes) -> SD3Transformer2DModel:
    """Stable Diffusion 3's transformer, small; modulations and output start at zero."""
    width = sizes.dit_heads * sizes.dit_head_width
    dit = SD3Transformer2DModel(
        sample_size=LATENT_SIDE,
        patch_size=sizes.dit_patch,
        in_channels=LATENT_CHANNELS,
        out_channels=LATENT_CHANNELS,
        num_layers=sizes.dit_layers,
        attention_head_dim=sizes.dit_head_width,
        num_attention_heads=sizes.dit_heads,
        joint_attention_dim=sizes.dit_width,
        caption_projection_dim=width,
        pooled_projection_dim=sizes.dit_width,
        pos_embed_max_size=LATENT_SIDE,
        qk_norm="rms_norm",
    )
    zeroed = ("norm1.linear", "norm1_context.linear", "norm_out.linear", "proj_out")
    for name, module in dit.named_modules():
        if not isinstance(module, nn.Linear):
            continue
        if name.endswith(zeroed):
            nn.init.zeros_(module.weight)
        else:
            nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    return dit


def build_text(size: TextSize, vocabulary: Vocabulary) -> CLIPTextModelWithProjection:
    """A small CLIP text encoder over our own vocabulary."""
    return CLIPTextModelWithProjection(text_config(size, vocabulary))


def text_config(size: TextSize, vocabulary: Vocabulary) -> CLIPTextConfig:
    """The configuration of a text encoder of `size`."""
    return CLIPTextConfig(
        vocab_size=len(vocabulary.tokens),
        bos_token_id=vocabulary.begin,
        eos_token_id=vocabulary.end,
        pad_token_id=vocabulary.end,
        max_position_embeddings=LENGTH,
        hidden_size=size.width,
        intermediate_size=4 * size.width,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        projection_dim=size.width,
    )


@dataclass(frozen=True)
class Encoded:
    """What a text encoder makes of prompts: states of the last layer but one [B, 32, W], of the
    last after its norm, the projected pooled state [B, W] and the state at the end token."""

    penultimate: Tensor
    last: Tensor
    pooled: Tensor
    at_end: Tensor


def encode_text(model: Any, ids: Tensor, end: int) -> Encoded:
    """CLIPTextModel's arithmetic in operations that a CUDA graph can hold, forward and back.

    The embedding is a product with one-hot rows: the backward of an index is what breaks capture.
    """
    text = getattr(model, "text_model", model)
    batch, length = ids.shape
    table = text.embeddings.token_embedding.weight
    one_hot = ids[..., None] == torch.arange(table.shape[0], device=ids.device)
    x = one_hot.to(table.dtype) @ table + text.embeddings.position_embedding.weight[:length]
    states = [x]
    for layer in text.encoder.layers:
        attention = layer.self_attn
        normed = layer.layer_norm1(x)
        query, key, value = (
            project(normed).view(batch, length, attention.num_heads, -1).transpose(1, 2)
            for project in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + attention.out_proj(mixed.transpose(1, 2).reshape(batch, length, -1))
        inner = layer.mlp.fc1(layer.layer_norm2(x))
        x = x + layer.mlp.fc2(inner * torch.sigmoid(1.702 * inner))
        states.append(x)
    last = text.final_layer_norm(x)
    position = (ids == end).int().argmax(-1)[:, None, None].expand(-1, 1, last.shape[-1])
    at_end = last.gather(1, position)[:, 0]
    return Encoded(states[-2], last, model.text_projection(at_end), at_end)


class FactHeads(nn.Module):
    """Reads the facts of a prompt off a text encoder's state: a small extra loss that makes
    prompts understood early. Not shipped."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.read = nn.Linear(width, sum(FACTS))

    def loss(self, state: Tensor, facts: Tensor) -> Tensor:
        """Mean cross entropy over the facts; state [B, width], facts [B, len(FACTS)]."""
        parts = self.read(state).float().split(list(FACTS), 1)
        losses = [F.cross_entropy(part, facts[:, k]) for k, part in enumerate(parts)]
        return torch.stack(losses).mean()


@dataclass(frozen=True)
class Condition:
    """What the transformer is told: tokens [B, 32 + ZERO_TOKENS, W] and a pooled vector [B, W]."""

    tokens: Tensor
    pooled: Tensor
    at_end: Tensor


def encode_pair(first: Any, second: Any, ids: Tensor, end: int) -> Condition:
    """Two CLIPs side by side, then zero tokens, as StableDiffusion3Pipeline puts them."""
    one, two = encode_text(first, ids, end), encode_text(second, ids, end)
    tokens = torch.cat([one.penultimate, two.penultimate], -1)
    zeros = tokens.new_zeros(tokens.shape[0], ZERO_TOKENS, tokens.shape[2])
    return Condition(
        torch.cat([tokens, zeros], 1),
        torch.cat([one.pooled, two.pooled], -1),
        torch.cat([one.at_end, two.at_end], -1),
    )


def zero_token_bias(count: Tensor, sizes: Sizes) -> Tensor:
    """Bias on the attention's keys [B, keys] that lets ZERO_TOKENS tokens weigh like `count` [B].

    All zero tokens are alike in every layer, so n of them act as one with log(n) added to its
    score: exact, and the 256 tokens in T5's place cost nothing in training.
    """
    image_tokens = (LATENT_SIDE // sizes.dit_patch) ** 2
    bias = torch.zeros(count.shape[0], image_tokens + LENGTH + ZERO_TOKENS, device=count.device)
    bias[:, -ZERO_TOKENS:] = torch.log(count.float() / ZERO_TOKENS)[:, None]
    return bias


class BiasedJointAttention:
    """SD3's joint attention with a bias on the keys (see `zero_token_bias`)."""

    def __call__(
        self,
        attn: Any,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        key_bias: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        batch, image_tokens, _ = hidden_states.shape

        def heads(x: Tensor) -> Tensor:
            return x.view(batch, -1, attn.heads, x.shape[-1] // attn.heads).transpose(1, 2)

        query, key = heads(attn.to_q(hidden_states)), heads(attn.to_k(hidden_states))
        text_query = heads(attn.add_q_proj(encoder_hidden_states))
        text_key = heads(attn.add_k_proj(encoder_hidden_states))
        query = torch.cat([attn.norm_q(query), attn.norm_added_q(text_query)], 2)
        key = torch.cat([attn.norm_k(key), attn.norm_added_k(text_key)], 2)
        value = torch.cat(
            [heads(attn.to_v(hidden_states)), heads(attn.add_v_proj(encoder_hidden_states))], 2
        )
        length = query.shape[2]
        mask = None
        if key_bias is not None:
            mask = key_bias[:, None, None, :].to(value.dtype)
            mask = mask.expand(batch, attn.heads, length, length)
        mixed = F.scaled_dot_product_attention(
            query.to(value.dtype), key.to(value.dtype), value, attn_mask=mask
        )
        mixed = mixed.transpose(1, 2).reshape(batch, length, -1)
        image, text = mixed[:, :image_tokens], mixed[:, image_tokens:]
        if not attn.context_pre_only:
            text = attn.to_add_out(text)
        return attn.to_out[0](image), text
