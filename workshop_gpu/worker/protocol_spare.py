"""What the host and a process that stands by tell each other until it is a worker; a part of
`protocol.py`."""

import msgspec


class TakeOver(msgspec.Struct, frozen=True, tag="take_over"):
    """To a worker that stands by (`StandingBy`): open this device, whose last worker may still be
    going, and be its worker once told to `Begin`.

    `device` is "cuda" or "cpu", `gpu_uuid` the card ("" for cpu), `total_bytes` what a cpu device
    pretends to have. `neighbours` are others whose memory its models may use, with their cards, by
    the server's names. `context_bytes` is what a worker without models holds of the card: it cannot
    be measured while another one goes (0: measure it).
    """

    device: str
    gpu_uuid: str = ""
    total_bytes: int = 0
    neighbours: dict[str, str] = {}
    context_bytes: int = 0


class Begin(msgspec.Struct, frozen=True, tag="begin"):
    """The last worker of the device that was taken over is gone. Answered by Ready."""


class StandingBy(msgspec.Struct, frozen=True, tag="standing_by"):
    """The process has imported everything and waits for TakeOver; it has touched no device."""

    pid: int
