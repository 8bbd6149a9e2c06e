"""What a model's components are for, and what each role takes: from headers alone.

These are estimates: once the model was loaded, the worker says how large its roles really are.
"""

from collections.abc import Iterable

from workshop_gpu.catalogue.pipeline_folder import Component
from workshop_gpu.conductor.rungs import ROLES, VAE, RoleBytes, role_of


def roles_of(components: Iterable[Component]) -> tuple[RoleBytes, ...]:
    """The bytes of each role that is there."""
    known = list(components)
    found: list[RoleBytes] = []
    for role in ROLES:
        own = [each for each in known if role_of(each.name) == role]
        blocks = tuple(size for each in own for size in each.blocks_bytes)
        size = sum(each.loaded_bytes for each in own)
        if size:
            found.append(RoleBytes(role, size, () if role == VAE else blocks))
    return tuple(found)
