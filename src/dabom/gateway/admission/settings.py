"""What admission can be told."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class AdmissionSettings(BaseModel):
    """Who gets a permit when there are not enough, and how many may wait for one."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False, extra="forbid")

    max_queue: int = Field(
        1000, ge=1, description="requests of one priority that may wait for one upstream; 429 beyond it"
    )
    aging_s: float = Field(
        10,
        gt=0,
        description="a lower priority that was not served for so long, and was passed meanwhile, is next",
    )
    max_bytes_in_flight: int = Field(
        2**30, ge=1024, description="bodies that are being received or held, of all requests; others wait"
    )
    default_answer_tokens: int = Field(
        1024, ge=1, description="tokens of an answer whose request sets no `max_tokens`"
    )
