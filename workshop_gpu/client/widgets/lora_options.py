"""Which LoRAs the studio puts on, as a trait: checked against the model that is picked."""

import math
from typing import Any

import traitlets

from workshop_gpu.client.widgets.options import StudioOptions

_MOST_SCALE = 2.0
_MOST_LORAS = 4


class StudioLoras(StudioOptions):
    """`loras` are put on, each with its scale from -2 to 2: {"ink": 0.8}. Another model keeps those
    that are for it too."""

    loras = traitlets.Dict().tag(sync=True)

    def _offered_loras(self) -> list[str]:
        return [lora["id"] for lora in self._choice().get("loras", [])]

    def _take_options(self, options: Any) -> None:
        super()._take_options(options)
        if isinstance(options, dict) and "loras" in options:
            self.loras = options["loras"]

    @traitlets.validate("loras")
    def _check_loras(self, proposal: Any) -> dict[str, float]:
        loras: dict[str, Any] = proposal["value"]
        offered = self._offered_loras()
        if len(loras) > _MOST_LORAS:
            raise traitlets.TraitError(f"loras: at most {_MOST_LORAS} go together.")
        for name, scale in loras.items():
            if name not in offered:
                raise traitlets.TraitError(
                    f'loras: there is no LoRA "{name:.80}" for {self.model}. Offered here: '
                    f"{', '.join(offered) or 'none'}."
                )
            number = isinstance(scale, int | float) and not isinstance(scale, bool)
            if not number or not (math.isfinite(scale) and abs(scale) <= _MOST_SCALE):
                raise traitlets.TraitError(
                    f"loras: {name}={scale!r:.40}: it must be a number from -2 to 2."
                )
        return {name: float(scale) for name, scale in loras.items()}

    @traitlets.observe("model", "_models")
    def _keep_loras_that_fit(self, _: Any) -> None:
        offered = self._offered_loras()
        kept = {name: scale for name, scale in self.loras.items() if name in offered}
        if kept != self.loras:
            self.loras = kept
