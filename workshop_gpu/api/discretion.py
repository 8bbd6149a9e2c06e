"""What participants read of a fault: its reason, without the places of the server's disk."""

import re
from pathlib import PurePosixPath

import msgspec

from workshop_gpu.conductor.errors import ErrorReport, Fact

_PATH = re.compile(r"(?<![\w/:.])/(?:[^\s/:;,'\"()]+/)+[^\s/:;,'\"()]*")
"""An absolute path of at least one folder; not what follows a host in an address."""


def without_paths(text: str) -> str:
    """Of each absolute path only its last name is left."""
    return _PATH.sub(lambda found: PurePosixPath(found[0]).name, text)


def discreet(error: ErrorReport) -> ErrorReport:
    """The error without paths, in its facts too."""
    facts = {name: _discreet(fact) for name, fact in error.facts.items()}
    return msgspec.structs.replace(error, message=without_paths(error.message), facts=facts)


def _discreet(fact: Fact) -> Fact:
    if isinstance(fact, str):
        return without_paths(fact)
    return [without_paths(each) for each in fact] if isinstance(fact, list) else fact
