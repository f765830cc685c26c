from __future__ import annotations

import pytest

from dabom.client.endpoint import endpoint
from dabom.errors import ConfigError


@pytest.mark.parametrize(
    ("given", "root"),
    [
        ("http://host:8001", "http://host:8001"),
        ("http://host:8001/", "http://host:8001"),
        ("http://host:8000/v1", "http://host:8000"),
        ("http://host:8000/v1/", "http://host:8000"),
        ("http://host/llm/v1", "http://host/llm"),
        ("https://host/v1/chat/completions", "https://host"),
        ("http://host:8001/chat", "http://host:8001"),
        ("127.0.0.1:8001", "http://127.0.0.1:8001"),
        (" http://[::1]:8001/v1 ", "http://[::1]:8001"),
    ],
)
def test_a_gateway_root_and_a_v1_base_are_the_same_thing(given: str, root: str) -> None:
    assert endpoint(given).root == root
    assert endpoint(given).url("/v1/models") == f"{root}/v1/models"


@pytest.mark.parametrize(
    "given", ["", "ftp://host", "http://", "http://host:99999", "http://u:pw@host", "http://h?x=1"]
)
def test_unusable_urls_are_refused_without_being_shown(given: str) -> None:
    with pytest.raises(ConfigError) as caught:
        endpoint(given)
    assert "pw" not in str(caught.value)
