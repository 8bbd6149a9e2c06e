"""What is chosen in the studio, as traits: each checked against the model that is picked."""

import math
from typing import Any

import anywidget
import traitlets

from workshop_gpu.api.schemas import MAX_PROMPT_CHARACTERS

MAX_SEED = 2**53 - 1
"""The largest whole number that a browser does not round."""
MAX_GUIDANCE = 100.0
_WRITTEN = ("prompt", "negative_prompt", "seed", "count")
_OF_THE_MODEL = ("steps", "guidance", "width", "height")

Choice = dict[str, Any]
"""What `model_choice` gives."""


class StudioOptions(anywidget.AnyWidget):
    """The options of a request. Nonsense raises TraitError and changes nothing.

    `seed` None draws a new one each time; `steps`, `guidance`, `width` and `height` None take the
    model's default. `count` is how many pictures one click makes.
    """

    prompt = traitlets.Unicode("").tag(sync=True)
    negative_prompt = traitlets.Unicode("").tag(sync=True)
    model = traitlets.Unicode("").tag(sync=True)
    seed = traitlets.Int(None, allow_none=True).tag(sync=True)
    steps = traitlets.Int(None, allow_none=True).tag(sync=True)
    guidance = traitlets.Float(None, allow_none=True).tag(sync=True)
    width = traitlets.Int(None, allow_none=True).tag(sync=True)
    height = traitlets.Int(None, allow_none=True).tag(sync=True)
    count = traitlets.Int(1).tag(sync=True)

    _models = traitlets.List(trait=traitlets.Dict()).tag(sync=True)
    _error = traitlets.Dict().tag(sync=True)
    _max_characters = traitlets.Int(MAX_PROMPT_CHARACTERS).tag(sync=True)

    def set_state(self, sync_data: Any) -> None:
        """What the browser sends; where it makes no sense the browser gets back what was.

        It may send several clicks as one. The model comes first, because it brings its own
        defaults, and must not undo what was chosen after it.
        """
        first = {name: sync_data[name] for name in ("model",) if name in sync_data}
        try:
            if first:
                super().set_state(first)
            super().set_state({name: sync_data[name] for name in sync_data if name not in first})
        except traitlets.TraitError as problem:
            self._error = {"title": "That value does not work", "message": str(problem)}
            self.send_state([name for name in sync_data if name in self.keys])

    def _take_options(self, options: Any) -> None:
        """What stood in the browser at the click: traits that changed just before it may still be
        on their way. Raises TraitError."""
        given = options if isinstance(options, dict) else {}
        if "model" in given:
            self.model = given["model"]
        with self.hold_trait_notifications():
            for name in (*_WRITTEN, *_OF_THE_MODEL):
                if name in given:
                    setattr(self, name, given[name])

    def _choice(self) -> Choice:
        """The model that is picked; {} where it is not offered any more."""
        own = (model for model in self._models if model["id"] == self.model)
        return next(own, {})

    def _limit(self, name: str, otherwise: int) -> int:
        return int(self._choice().get("limits", {}).get(name, otherwise))

    def _size(self) -> tuple[int, int] | None:
        if self.width is None and self.height is None:
            return None
        defaults = self._choice().get("defaults", {})
        width = self.width or int(defaults.get("width", self.height or 0))
        height = self.height or int(defaults.get("height", self.width or 0))
        return width, height

    # checks

    @traitlets.validate("prompt", "negative_prompt")
    def _check_text(self, proposal: Any) -> str:
        text = str(proposal["value"])
        if len(text) > MAX_PROMPT_CHARACTERS:
            raise traitlets.TraitError(
                f"{proposal['trait'].name}: {len(text)} characters are too many; "
                f"at most {MAX_PROMPT_CHARACTERS} are read. Shorten it."
            )
        return text

    @traitlets.validate("model")
    def _check_model(self, proposal: Any) -> str:
        model = str(proposal["value"])
        known = sorted(each["id"] for each in self._models)
        if model not in known:
            offered = ", ".join(known) or "none"
            raise traitlets.TraitError(f'There is no model "{model}". Offered here: {offered}.')
        return model

    @traitlets.validate("seed")
    def _check_seed(self, proposal: Any) -> int | None:
        return _between(proposal, 0, MAX_SEED, "or None to draw one each time")

    @traitlets.validate("steps")
    def _check_steps(self, proposal: Any) -> int | None:
        return _between(proposal, 1, self._limit("max_steps", 1000), _OR_NONE)

    @traitlets.validate("count")
    def _check_count(self, proposal: Any) -> int | None:
        return _between(proposal, 1, self._limit("max_images", 100), "")

    @traitlets.validate("guidance")
    def _check_guidance(self, proposal: Any) -> float | None:
        guidance: float | None = proposal["value"]
        if guidance is not None and not (math.isfinite(guidance) and 0 <= guidance <= MAX_GUIDANCE):
            raise _refusal(proposal, f"a number from 0 to {MAX_GUIDANCE:.0f}", _OR_NONE)
        return guidance

    @traitlets.validate("width", "height")
    def _check_side(self, proposal: Any) -> int | None:
        side: int | None = proposal["value"]
        unit, longest = self._limit("size_multiple", 1), self._limit("max_side", 2**15)
        if side is not None and (not unit <= side <= longest or side % unit):
            raise _refusal(proposal, f"a multiple of {unit} from {unit} to {longest}", _OR_NONE)
        return side

    @traitlets.observe("model")
    def _take_the_models_defaults(self, change: Any) -> None:
        """Twenty steps are right for one model and a waste for another."""
        if change["old"] and change["old"] != change["new"]:
            for name in _OF_THE_MODEL:
                setattr(self, name, None)
            self.count = min(self.count, self._limit("max_images", self.count))


_OR_NONE = "or None for the model's default"


def _between(proposal: Any, lowest: int, highest: int, otherwise: str) -> int | None:
    value: int | None = proposal["value"]
    if value is not None and not lowest <= value <= highest:
        raise _refusal(proposal, f"a whole number from {lowest} to {highest}", otherwise)
    return value


def _refusal(proposal: Any, wanted: str, otherwise: str) -> traitlets.TraitError:
    name = proposal["trait"].name
    end = f", {otherwise}" if otherwise else ""
    return traitlets.TraitError(f"{name}={proposal['value']!r}: it must be {wanted}{end}.")
