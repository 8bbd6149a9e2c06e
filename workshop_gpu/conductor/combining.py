"""Rungs that are put together by hand: one word for each role says how it is placed.

In models.toml they are a table, `placement = { encoders = "cpu", denoiser = "streamed" }`. Their
name says the same in one line, `encoders=cpu,denoiser=streamed`; a role that has no word stays on
the device.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache

from workshop_gpu.conductor.rungs import (
    DENOISER,
    ENCODERS,
    ROLES,
    SLICED,
    TILED,
    VAE,
    Placement,
    Rung,
    Streams,
)

STAYS = "resident"
STREAMED, ALL_STREAMED = "streamed", "all-streamed"
_STAGED, _CPU, _SWAP = "staged", "cpu", "swap"

_HOMES = {
    ENCODERS: {
        _STAGED: "text encoders staged",
        STREAMED: "text encoders streamed",
        _CPU: "text encoders on the CPU",
        _SWAP: "text encoders on another GPU",
    },
    DENOISER: {
        _STAGED: "the denoiser staged",
        STREAMED: "the denoiser partly streamed",
        ALL_STREAMED: "the denoiser streamed as a whole",
        _SWAP: "the denoiser partly streamed from another GPU",
    },
    VAE: {_STAGED: "VAE staged"},
}
"""Where a role's weights are, if they do not stay on the device, in words for people."""
_EXTRAS = {DENOISER: (SLICED, "attention slicing"), VAE: (TILED, "VAE tiling")}
"""What a role may do beside that."""


def words_for(role: str) -> tuple[str, ...]:
    """The words that may be said of a role."""
    homes = (STAYS, *_HOMES[role])
    if role not in _EXTRAS:
        return homes
    extra, _ = _EXTRAS[role]
    return (*homes, extra, *(f"{home}+{extra}" for home in homes[1:]))


def problems_in(combination: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Roles whose word cannot be, and why."""
    for role, word in combination.items():
        if word not in words_for(role):
            yield role, f'{role} = "{word[:80]}" is not known; it is {", ".join(words_for(role))}'
    home, _ = _split(combination.get(DENOISER, STAYS))
    if combination.get(ENCODERS) == _SWAP and home in (STREAMED, ALL_STREAMED):
        yield (
            DENOISER,
            f'denoiser = "{home}" comes from host memory, and with encoders = "{_SWAP}" what is '
            f'streamed comes from the swap device too; write denoiser = "{_SWAP}", or '
            f'encoders = "{_STAGED}"',
        )


def name_of(combination: Mapping[str, str]) -> str:
    """The combination in one line; "resident" where everything stays on the device."""
    said = [f"{role}={combination[role]}" for role in ROLES if _is_said(combination, role)]
    return ",".join(said) or STAYS


def read_name(name: str) -> dict[str, str] | None:
    """What a name says of each role, in any order; None where it is no name of a combination."""
    said = [part.strip().partition("=") for part in name.split(",")]
    found = {role.strip(): word.strip() for role, _, word in said}
    if len(found) < len(said) or not all(role in ROLES for role in found):
        return None
    return None if any(problems_in(found)) else found


def combined(combination: Mapping[str, str]) -> Rung:
    """The rung of a combination that can be."""
    return _combined(tuple(combination.get(role, STAYS) for role in ROLES))


def combination_of(placement: Placement) -> Rung | None:
    """The rung whose words say where these weights are; None where there are no such words."""
    placed = {
        _STAGED: placement.staged,
        STREAMED: placement.streamed,
        _CPU: placement.on_cpu,
        _SWAP: placement.elsewhere,
    }
    homes = {role: home for home, roles in placed.items() for role in roles}
    if placement.streamed_bytes:
        homes[DENOISER] = _SWAP if placement.source else STREAMED
    extras = {DENOISER: placement.sliced, VAE: placement.tiled}
    combination = {
        role: _joined(homes.get(role, STAYS), _EXTRAS[role][0] if extras.get(role) else "")
        for role in ROLES
    }
    return None if any(problems_in(combination)) else combined(combination)


@lru_cache(maxsize=256)
def _combined(words: tuple[str, ...]) -> Rung:
    combination = dict(zip(ROLES, words, strict=True))
    homes = {role: _split(word)[0] for role, word in combination.items()}
    extras = [_split(word)[1] for word in words]

    def roles(home: str) -> tuple[str, ...]:
        return tuple(role for role in ROLES if homes[role] == home)

    streams = {STREAMED: Streams.SOME, _SWAP: Streams.SOME, ALL_STREAMED: Streams.ALL}
    return Rung(
        name_of(combination),
        ", ".join(_in_words(combination)),
        Placement(
            staged=roles(_STAGED),
            on_cpu=roles(_CPU),
            tiled=TILED in extras,
            sliced=SLICED in extras,
            streamed=(ENCODERS,) if homes[ENCODERS] == STREAMED else (),
            elsewhere=(ENCODERS,) if homes[ENCODERS] == _SWAP else (),
        ),
        streams.get(homes[DENOISER], Streams.NOTHING),
        by_name_only=True,
        swaps=bool(roles(_SWAP)),
    )


def _in_words(combination: Mapping[str, str]) -> Iterator[str]:
    """As people read it, in the order of the ladder's own words."""
    for role in (ENCODERS, VAE, DENOISER):
        home, extra = _split(combination[role])
        if home != STAYS:
            yield _HOMES[role][home]
        if extra:
            yield _EXTRAS[role][1]


def _is_said(combination: Mapping[str, str], role: str) -> bool:
    return combination.get(role, STAYS) != STAYS


def _split(word: str) -> tuple[str, str]:
    """Where the weights are, and what the role does beside that ("": nothing)."""
    home, _, extra = word.partition("+")
    return (STAYS, home) if home in (TILED, SLICED) else (home, extra)


def _joined(home: str, extra: str) -> str:
    words = [*([] if home == STAYS and extra else [home]), *([extra] if extra else [])]
    return "+".join(words)
