from __future__ import annotations

import numpy as np
import pytest

from dabom.media.hearing import downmix

SURROUND = ["FL", "FR", "FC", "LFE", "BL", "BR"]


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize(
    "names", [["FC"], ["FL", "FR"], SURROUND, [*SURROUND, "SL", "SR"], ["FL", "FR", "FC"]]
)
def test_full_scale_on_every_channel_does_not_clip(names: list[str], channels: int) -> None:
    mixed = downmix(names, channels)
    assert mixed.shape == (channels, len(names))
    np.testing.assert_allclose(mixed.sum(1), 1, atol=1e-6)


def test_two_channels_stay_apart() -> None:
    assert downmix(["FL", "FR"], 2).tolist() == [[1, 0], [0, 1]]
    left, right = downmix(SURROUND, 2)
    assert left[1] == left[5] == right[0] == right[4] == 0
    assert left[2] == right[2] > left[0] > left[4] > left[3] == 0
