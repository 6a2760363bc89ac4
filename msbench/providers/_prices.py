"""What tokens cost: by the given prices, else by the package ``genai-prices``, else unknown."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

Price = tuple[float, float]


@dataclass(frozen=True)
class Prices:
    """The prices of one model at one endpoint; ``given`` is dollars a million prompt and completion tokens."""

    model: str
    host: str
    given: Price | None = None

    def cost(self, prompt: int, completion: int, cached: int = 0) -> tuple[float | None, str]:
        """Dollars, and whose figure that is; None where it is not known."""
        if self.given is not None:
            return (prompt * self.given[0] + completion * self.given[1]) / 1e6, "--price"
        if self._list is None:
            return None, ""
        try:
            usage = self._list.Usage(input_tokens=prompt, cache_read_tokens=cached, output_tokens=completion)
            priced = self._list.calc_price(usage, model_ref=self.model, provider_api_url=f"https://{self.host}/v1")
            return float(priced.total_price), f"genai-prices {self._version}"
        except (LookupError, ValueError, TypeError):
            return None, ""

    @cached_property
    def _list(self) -> Any:
        try:
            import genai_prices
        except ImportError:
            return None
        return genai_prices

    @cached_property
    def _version(self) -> str:
        from importlib.metadata import version

        return version("genai-prices")
