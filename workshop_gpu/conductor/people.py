"""People in the conductor's sentences.

It knows participants by their ids, which nobody should read. A sentence has the id between two
characters that are not seen and that no id can have; whoever shows it puts a name there.
"""

import re
from collections.abc import Callable

_BEFORE, _AFTER = "\u2068", "\u2069"
"""Unicode's own pair for what is put into a sentence."""
_PERSON = re.compile(f"{_BEFORE}([^{_BEFORE}{_AFTER}]*){_AFTER}")


def person(participant: str) -> str:
    """A participant, as a part of a sentence."""
    return f"{_BEFORE}{participant}{_AFTER}"


def with_names(text: str, name_of: Callable[[str], str]) -> str:
    """The sentence with the names of those in it; `name_of` is given a participant's id."""
    return _PERSON.sub(lambda found: name_of(found[1]), text)
