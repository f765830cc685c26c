from __future__ import annotations

import base64

import pytest

from dabom.errors import InvalidMedia
from dabom.media import read_data_uri


def test_bytes_and_declared_type() -> None:
    found = read_data_uri("data:image/PNG;charset=x;base64," + base64.b64encode(b"abc").decode())
    assert found.declared == "image/png"
    assert found.parts == (b"abc",)


def test_a_list_of_frames_has_several_parts() -> None:
    parts = [base64.b64encode(part).decode() for part in (b"one", b"two", b"three")]
    assert read_data_uri("data:video/jpeg;base64," + ",".join(parts)).parts == (b"one", b"two", b"three")


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("http://example.invalid/a.png", "a http: URL"),
        ("https://example.invalid/a.png", "a https: URL"),
        ("file:///etc/hostname", "a file: URL"),
        ("/etc/hostname", "without a scheme"),
        ("data:image/png,abc", "not marked ;base64"),
        ("data:image/png;base64,%%%", "not valid base64"),
        ("data:image/png;base64,abc", "not valid base64"),
        ("data:image/png;base64,", "0 bytes"),
        ("data:video/jpeg;base64,YQ==,,YQ==", "0 bytes"),
    ],
)
def test_everything_else_is_refused_with_what_was_found(uri: str, said: str) -> None:
    with pytest.raises(InvalidMedia, match=said) as caught:
        read_data_uri(uri)
    assert "hostname" not in caught.value.message
