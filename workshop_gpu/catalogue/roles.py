"""What a model's components are for, what each role takes and cannot do: from headers alone.

These are estimates: once the model was loaded, the worker says how it really is.
"""

from collections.abc import Iterable

from workshop_gpu.catalogue.pipeline_folder import WHOLE, Component
from workshop_gpu.conductor.rungs import ROLES, SLICED, TILED, VAE, RoleBytes, role_of

WITHOUT_TILING = {
    "AsymmetricAutoencoderKL",
    "AutoencoderKLTemporalDecoder",
    "AutoencoderRAE",
    "VQModel",
}
"""diffusers' VAEs for pictures that cannot work tile by tile."""
WITH_SLICING = {"ControlNetModel", "UNet2DConditionModel", "UNet3DConditionModel"}
"""diffusers' networks that can compute attention slice by slice: transformers have no switch."""


def roles_of(components: Iterable[Component]) -> tuple[RoleBytes, ...]:
    """The bytes of each role that is there; () where the parts are not known."""
    known = [each for each in components if each.name != WHOLE]
    found: list[RoleBytes] = []
    for role in ROLES:
        own = [each for each in known if role_of(each.name) == role]
        blocks = tuple(size for each in own for size in each.blocks_bytes)
        size = sum(each.loaded_bytes for each in own)
        if size:
            layer_bytes = max(each.layer_bytes for each in own)
            loose_bytes = sum(each.loose_bytes for each in own)
            streamable = (blocks, layer_bytes, loose_bytes) if role != VAE else ()
            found.append(RoleBytes(role, size, *streamable))
    return tuple(found)


def lacks_of(components: Iterable[Component]) -> tuple[str, ...]:
    """What of `MANNERS` the model cannot do, as far as its classes are known."""
    classes = {each.name: each.class_name for each in components if each.class_name}
    vaes = {each for name, each in classes.items() if role_of(name) == VAE}
    lacking = []
    if vaes and vaes <= WITHOUT_TILING:
        lacking.append(TILED)
    if classes and not WITH_SLICING & set(classes.values()):
        lacking.append(SLICED)
    return tuple(lacking)
