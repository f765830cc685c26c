"""What the gateway does with the media of a request, as it can be told."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

_HOST = re.compile(r"(?:\*\.)?[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?", re.IGNORECASE)


def _check_allowed(entry: str) -> str:
    """A host, `*.` and a domain, or a network."""
    try:
        ipaddress.ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        if not _HOST.fullmatch(entry):
            raise ValueError(
                f"{entry!r} is no host (nas.example), domain (*.example) or network (10.20.0.0/16)"
            ) from None
    return entry.lower()


class MediaSettings(BaseModel):
    """Limits and policy for pictures, clips and sounds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    check: bool = Field(
        True,
        description="refuse media that no server reads: cut off, of another type than declared, moving "
        "pictures, SVG, HEIC",
    )
    normalise: bool = Field(
        True, description="scale down pictures with more pixels than `max_pixels` of the route or upstream"
    )
    max_images: int | None = Field(None, ge=0, description="pictures of one request; unset: any number")
    max_videos: int | None = Field(None, ge=0, description="clips of one request; unset: any number")
    max_sounds: int | None = Field(None, ge=0, description="sounds of one request; unset: any number")
    max_decoded_pixels: int = Field(
        100_000_000, ge=1, description="pixels of a picture, or of a frame of a clip, that is decoded at all"
    )
    allow: tuple[Annotated[str, AfterValidator(_check_allowed)], ...] = Field(
        (),
        description="hosts, domains (`*.example`) and networks whose URLs the gateway fetches itself; "
        "private addresses need their network here; all other outside URLs are refused",
    )
    max_fetch_bytes: int = Field(
        64 * 2**20, ge=1024, description="bytes fetched for one request, in one file or several"
    )
    fetch_timeout_s: float = Field(20, gt=0, description="time for one fetched file, redirects included")
    omni: Literal["warn", "fix", "refuse"] = Field(
        "warn",
        description="what is done about options of a clip that an upstream would refuse or misread: "
        "`warn` tells in a header, `fix` corrects and tells, `refuse` refuses",
    )
    workers: int = Field(1, ge=1, le=16, description="processes that scale pictures")
    scale_timeout_s: float = Field(30, gt=0, description="time to scale one picture")
