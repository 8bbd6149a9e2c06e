"""Everybody's account of GPU seconds, in a form that the shell can keep across restarts."""

import msgspec


class Accounts(msgspec.Struct, frozen=True):
    """As `fairness.Shares` has them, without what running jobs have paid in advance: a life of the
    server that ends with them never earned it.

    `used_s` are GPU seconds by participant; `starts_s` is where the next job of those starts who
    came back after a pause and of whom none has begun since. `costs_s` are the GPU seconds that
    waiting jobs are expected to use, by job: their order follows from these too.
    """

    level_s: float = 0.0
    used_s: dict[str, float] = {}
    starts_s: dict[str, float] = {}
    costs_s: dict[str, float] = {}
