"""A clip at one glance: a few of its frames side by side, as one small JPEG."""

from __future__ import annotations

import io

from PIL import Image

from dabom.media.video import Sampling, open_video

_QUALITY = 65


def strip(content: bytes, count: int = 4, height: int = 81) -> bytes:
    """`count` frames spread over the clip, from left to right. Raises InvalidMedia."""
    pictures = list[Image.Image]()
    with open_video(content, Sampling(num_frames=count)) as clip:
        for frame in clip.frames:
            if frame.sampled:
                picture = frame.picture()
                width = max(1, round(picture.width * height / picture.height))
                pictures.append(picture.resize((width, height), Image.Resampling.BILINEAR))
    whole = Image.new("RGB", (sum(picture.width for picture in pictures), height))
    left = 0
    for picture in pictures:
        whole.paste(picture, (left, 0))
        left += picture.width
    file = io.BytesIO()
    whole.save(file, "JPEG", quality=_QUALITY)
    return file.getvalue()
