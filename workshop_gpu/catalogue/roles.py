"""What a model's components are for, and what each role takes: from headers alone.

These are estimates: once the model was loaded, the worker says how large its roles really are.
"""

from collections.abc import Iterable

from workshop_gpu.catalogue.pipeline_folder import Component
from workshop_gpu.conductor.rungs import DENOISER, ENCODERS, ROLES, VAE, RoleBytes

_ENCODERS = ("text_encoder", "image_encoder")
_VAES = ("vae", "vqvae", "movq", "vqgan")


def role_of(component: str) -> str:
    """The role of a pipeline's component; one that nobody knows counts to the denoiser, which
    never leaves as a whole unless all do."""
    if component.startswith(_ENCODERS):
        return ENCODERS
    return VAE if component.startswith(_VAES) else DENOISER


def roles_of(components: Iterable[Component]) -> tuple[RoleBytes, ...]:
    """The bytes of each role that is there."""
    known = list(components)
    found: list[RoleBytes] = []
    for role in ROLES:
        own = [each for each in known if role_of(each.name) == role]
        blocks = tuple(size for each in own for size in each.blocks_bytes)
        size = sum(each.loaded_bytes for each in own)
        if size:
            found.append(RoleBytes(role, size, blocks if role == DENOISER else ()))
    return tuple(found)
