"""A busy crowd in which for long nothing happens but work: shares that are not kept drift apart."""

from tests.conductor.busy_crowd import BusyCrowd


class EvenCrowd(BusyCrowd):
    """Everybody asks at once, and others go first for a short time only."""

    patience_s = 5.0
    moments = 150
    works = 0.8
    asks = 1.0
