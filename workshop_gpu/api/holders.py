"""Who holds a GPU's memory, with the names that people know."""

from collections.abc import Callable, Collection, Iterable

from workshop_gpu.conductor.effects import Holder

_SHARED = "shared by "


def named(
    holders: Iterable[Holder],
    notebooks: Collection[str],
    owner_of: Callable[[str, str], str | None],
) -> list[Holder]:
    """The same bytes, each part by the name of who has it.

    Parts that models share get a kind of their own ("shared"), and so do processes of this
    server's `notebooks` ("notebook"). `owner_of(kind, id)` names the owner of a job or
    reservation; two parts of one kind and name become one.
    """
    sums: dict[tuple[str, str], int] = {}
    for holder in holders:
        kind, name = holder.kind, holder.name
        if kind == "weights" and name.startswith(_SHARED):
            kind, name = "shared", name.removeprefix(_SHARED)
        elif kind == "foreign" and name in notebooks:
            kind = "notebook"
        elif kind in ("working", "reservation"):
            name = owner_of(kind, name) or name
        sums[kind, name] = sums.get((kind, name), 0) + holder.bytes
    return [Holder(kind, name, size_bytes) for (kind, name), size_bytes in sums.items()]
