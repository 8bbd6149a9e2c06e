"""Faults of ours in a thread that goes on behind them: what it shows must not stand still."""

import traceback


class Faults:
    """Prints what broke; the same fault again and again only once."""

    def __init__(self) -> None:
        self._said = ""

    def say(self, fault: Exception) -> None:
        if repr(fault) != self._said:
            self._said = repr(fault)
            traceback.print_exception(fault)
