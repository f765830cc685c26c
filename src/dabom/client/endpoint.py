"""Where an endpoint's paths are, from the URL that a person typed."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from dabom.errors import ConfigError

_TAILS = ("/chat/completions", "/completions", "/models", "/chat/batch", "/chat", "/v1")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`root` of a server: `http://host:8001` for a gateway, and for a server named by its `/v1` as well."""

    root: str

    def url(self, path: str) -> str:
        """The URL of a path that starts with a slash."""
        return self.root + path


def endpoint(base_url: str) -> Endpoint:
    """The endpoint of a gateway root, an OpenAI base that ends in `/v1`, or a whole path below either."""
    url = base_url.strip()
    if "://" not in url:
        url = f"http://{url}"
    try:
        parts = urlsplit(url)
        valid = (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and (parts.port is None or parts.port > 0)
        )
    except ValueError:
        valid = False
    if not valid or parts.username or parts.query or parts.fragment:
        raise ConfigError(
            "the endpoint's URL is not usable; give http://HOST:PORT or http://HOST:PORT/v1, "
            "without user, query or fragment"
        )
    path = parts.path.rstrip("/")
    for tail in _TAILS:
        path = path.removesuffix(tail).rstrip("/")
    return Endpoint(f"{parts.scheme}://{parts.netloc}{path}")
