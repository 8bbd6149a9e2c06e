"""How a magic's line and cell are read: options with help and near misses, braces, completion."""

# IPython's magics carry no types.
# mypy: disable-error-code="no-untyped-call"

import argparse
import difflib
import shlex
import string
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from workshop_gpu.client.errors import ClientError

_MODELS_KEPT_S = 10.0


def options_of(magic: Any, sign: str, line: str) -> argparse.Namespace | None:
    """The line's options; None where help was asked for, which is printed.

    `sign` is what stands before the magic's name. Raises UsageError with the nearest option.
    """
    name = f"{sign}{magic.__name__}"
    parser: argparse.ArgumentParser = magic.parser
    try:
        words = shlex.split(line)
    except ValueError:
        raise UsageError(f"{name}: a quote is opened and not closed. Close it.") from None
    if "--help" in words or "-h" in words:
        print(help_of(magic, sign))
        return None
    try:
        options, unknown = parser.parse_known_args(words)
    except UsageError as problem:
        raise UsageError(f"{name}: {problem}. {name} --help shows all options.") from None
    if unknown:
        raise UsageError(_unknown(name, parser, unknown[0]))
    return options


def help_of(magic: Any, sign: str) -> str:
    """The magic's help as a page."""
    text: str = magic.parser.format_help().replace("::\n\n", "").strip()
    return text.replace(f"%{magic.__name__}", f"{sign}{magic.__name__}", 1)


def option_names(magic: Any) -> list[str]:
    """The long names of a magic's options, `--help` too."""
    actions = magic.parser._actions
    names = [each for action in actions for each in action.option_strings if each[:2] == "--"]
    return sorted({*names, "--help"})


def _unknown(name: str, parser: argparse.ArgumentParser, word: str) -> str:
    given = word.partition("=")[0]
    if not given.startswith("-"):
        return f"{name} does not know what to do with {word!r:.80}. {name} --help shows how."
    there = [each for action in parser._actions for each in action.option_strings]
    near = difflib.get_close_matches(given, there, 1, 0.5)
    hint = f"Did you mean {near[0]}? " if near else ""
    return f"{name} has no option {given:.80}. {hint}{name} --help shows all options."


def filled_in(text: str, shell: InteractiveShell, what: str) -> str:
    """The text with each {expression} as it is worth in the notebook; {{ and }} are braces.

    As in an f-string, a format may follow: {size:.1f}. Raises UsageError where one fails.
    """
    if "{" not in text and "}" not in text:
        return text
    try:
        parts = list(string.Formatter().parse(text))
    except ValueError:
        raise UsageError(
            f"{what}: a brace has no partner. Write {{{{ or }}}} for a brace that is meant as one."
        ) from None
    return "".join(words + _value(field, spec or "", turn, shell, what)
                   for words, field, spec, turn in parts)  # fmt: skip


def _value(
    field: str | None, spec: str, turn: str | None, shell: InteractiveShell, what: str
) -> str:
    if field is None:
        return ""
    try:
        value = shell.ev(field)
        return format(string.Formatter().convert_field(value, turn), spec)
    except Exception as problem:  # whatever the notebook's own expression raises
        raise UsageError(
            f"{what}: {{{field}}} cannot be filled in: {type(problem).__name__}: {problem}. Set it "
            "in an earlier cell, or write {{ and }} for braces that are meant as such."
        ) from None


class Completion:
    """Completes options, models and a few words behind our magics, through IPython's own hook.

    `models` gives the ids of the models on offer; it is asked once in a while.
    """

    def __init__(self, shell: InteractiveShell, models: Callable[[], Iterable[str]]) -> None:
        self._shell = shell
        self._models = models
        self._known: list[str] = []
        self._asked_at = float("-inf")

    def offer(self, magic: Any, names: Iterable[str], words: Iterable[str] = ()) -> None:
        """For a magic under these names (with their signs); `words` go where no option is begun,
        "MODEL" for every model."""
        options, others = option_names(magic), list(words)

        def complete(_: Any, event: Any) -> list[str]:
            before = event.line[: len(event.line) - len(event.symbol)].split()
            if before and before[-1] in ("-m", "--model"):
                return self._ids()
            if event.symbol.startswith("-"):
                return options
            found = [word for word in others if word != "MODEL"]
            return [*found, *(self._ids() if "MODEL" in others else [])]

        for name in names:
            self._shell.set_hook("complete_command", complete, str_key=name)

    def _ids(self) -> list[str]:
        now = time.monotonic()
        if now - self._asked_at > _MODELS_KEPT_S:
            self._asked_at = now
            with suppress(ClientError):  # a Tab is no place for an error
                self._known = list(self._models())
        return self._known
