"""Outside URLs: refused unless an allow-list names them, and then fetched by us, not by the model server.

A name is resolved once and the connection goes to the address that was checked, so a second answer of the DNS
changes nothing. Redirects are checked like the first URL. Nothing of the client's request is sent along.
"""

from __future__ import annotations

import asyncio
import binascii
import ipaddress
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from dabom.errors import UrlRefused
from dabom.kinds import sniff

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    import aiohttp

    Resolve = Callable[[str, int], Awaitable[list[str]]]
    Address = ipaddress.IPv4Address | ipaddress.IPv6Address
    Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_PORTS = {"http": 80, "https": 443}
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MAX_REDIRECTS = 3
_MAX_URL_CHARS = 4096
_SNIFF_BYTES = 512


@dataclass(frozen=True)
class FetchRules:
    """What may be fetched: hosts (`nas.example`, `*.example`) and networks (`10.20.0.0/16`), and how much."""

    allow: tuple[str, ...] = ()
    max_bytes: int = 64 * 2**20
    timeout_s: float = 20.0


@dataclass
class Room:
    """Bytes that may still be fetched for one request, whatever number of files they are in."""

    left: int


@dataclass(frozen=True)
class Fetched:
    """A data URI as ASCII, the type that its bytes show, and how many they are."""

    uri: bytes
    mime: str
    size: int


@dataclass(frozen=True)
class Place:
    """Where a URL leads."""

    url: str
    host: str
    port: int
    secure: bool


def read_url(url: str) -> Place:
    """The parts of a URL that may be fetched at all. Raises UrlRefused; the message never shows its path."""
    if len(url) > _MAX_URL_CHARS or any(char <= " " or char == "\\" or char == "\x7f" for char in url):
        raise UrlRefused("the URL is too long, or holds spaces, backslashes or control characters")
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port
        host = host if host.isascii() else host.encode("idna").decode()
    except ValueError as fault:
        raise UrlRefused("the URL cannot be read") from fault
    if parts.scheme not in _PORTS:
        raise UrlRefused(f"a {parts.scheme or 'relative'}: URL is never opened; only http and https are")
    if not host or "@" in parts.netloc:
        raise UrlRefused("the URL needs a host and must not hold a user or a password")
    return Place(url, host, port or _PORTS[parts.scheme], parts.scheme == "https")


def names(host: str, allow: Sequence[str]) -> bool:
    """Whether the allow-list has this host by name; `*.example` has every name below `example`."""
    return any(
        host.endswith(entry[1:]) if entry.startswith("*.") else host == entry
        for entry in (one.lower().rstrip(".") for one in allow)
    )


def networks(allow: Sequence[str]) -> list[Network]:
    """The entries of the allow-list that are addresses or networks."""
    found: list[Network] = []
    for entry in allow:
        try:
            found.append(ipaddress.ip_network(entry.strip("[]"), strict=False))
        except ValueError:
            continue
    return found


def choose_address(place: Place, addresses: Sequence[str], allow: Sequence[str]) -> str:
    """The first address that may be connected to.

    One in a listed network may; one that is public may when the host is listed by name. A listed name that
    leads to a private address is refused until its network is listed too. Raises UrlRefused.
    """
    listed, by_name = networks(allow), names(place.host, allow)
    private = False
    for text in addresses:
        address = _plain(ipaddress.ip_address(text.partition("%")[0]))
        if any(address in network for network in listed if network.version == address.version):
            return text
        if by_name and address.is_global and not address.is_multicast:
            return text
        private = private or not address.is_global
    if by_name and private:
        raise UrlRefused(f"{place.host} has a private address; list its network too to allow it")
    raise UrlRefused(f"outside URLs are not opened: {place.host} is not on the allow-list")


def _plain(address: Address) -> Address:
    """An IPv4 address that is written as IPv6 is judged as what it is."""
    mapped = getattr(address, "ipv4_mapped", None) or getattr(address, "sixtofour", None)
    return mapped or address


async def resolve(host: str, port: int) -> list[str]:
    """All addresses of a host. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


async def fetch(url: str, rules: FetchRules, look_up: Resolve = resolve, room: Room | None = None) -> Fetched:
    """The bytes behind a URL as a data URI; they are taken from `room`. Raises UrlRefused."""
    place = read_url(url)
    room = room or Room(rules.max_bytes)
    if not rules.allow:
        raise UrlRefused("outside URLs are not opened; send the bytes as a data: URL")
    try:
        async with asyncio.timeout(rules.timeout_s):
            for _ in range(_MAX_REDIRECTS + 1):
                found = await _get(place, rules, look_up, room)
                if isinstance(found, Fetched):
                    return found
                if place.secure and not found.secure:
                    raise UrlRefused(f"{place.host} redirects from https to http")
                place = found
    except TimeoutError as fault:
        raise UrlRefused(f"{place.host} took longer than {rules.timeout_s:g} s") from fault
    raise UrlRefused(f"{place.host} redirects more than {_MAX_REDIRECTS} times")


async def _get(place: Place, rules: FetchRules, look_up: Resolve, room: Room) -> Fetched | Place:
    """One request to an address that was checked."""
    import aiohttp  # half of the gateways never open an outside URL

    try:
        address = choose_address(place, await look_up(place.host, place.port), rules.allow)
    except OSError as fault:
        raise UrlRefused(f"the name {place.host} cannot be resolved") from fault
    connector = aiohttp.TCPConnector(resolver=_pinned(address), use_dns_cache=False, force_close=True)
    try:
        async with (
            aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
            ) as session,
            session.get(place.url, allow_redirects=False, headers={"Accept-Encoding": "identity"}) as answer,
        ):
            return await _read(place, answer, rules, room)
    except (aiohttp.ClientError, OSError) as fault:
        raise UrlRefused(f"{place.host} could not be asked ({type(fault).__name__})") from fault


def _pinned(address: str) -> aiohttp.abc.AbstractResolver:
    """A resolver that knows one address."""
    from aiohttp.abc import AbstractResolver, ResolveResult

    class Pinned(AbstractResolver):
        async def resolve(
            self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
        ) -> list[ResolveResult]:
            kind = socket.AF_INET6 if ":" in address else socket.AF_INET
            return [
                ResolveResult(
                    hostname=host,
                    host=address,
                    port=port,
                    family=kind,
                    proto=0,
                    flags=socket.AI_NUMERICHOST,
                )
            ]

        async def close(self) -> None:
            return None

    return Pinned()


async def _read(
    place: Place, answer: aiohttp.ClientResponse, rules: FetchRules, room: Room
) -> Fetched | Place:
    if answer.status in _REDIRECTS:
        return read_url(urljoin(place.url, answer.headers.get("Location", "")))
    if answer.status != 200:
        raise UrlRefused(f"{place.host} answers with status {answer.status}")
    if answer.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise UrlRefused(f"{place.host} sends compressed bytes")
    if (answer.content_length or 0) > room.left:
        raise _too_many(place, rules)
    text, rest, head, size = bytearray(), b"", b"", 0
    async for chunk in answer.content.iter_any():
        size += len(chunk)
        room.left -= len(chunk)
        if room.left < 0:
            raise _too_many(place, rules)
        if len(head) < _SNIFF_BYTES:
            head += chunk[: _SNIFF_BYTES - len(head)]
        # encoded as it comes: megabytes at once would keep every stream waiting
        data = rest + chunk
        whole = len(data) // 3 * 3
        text += binascii.b2a_base64(memoryview(data)[:whole], newline=False)
        rest = data[whole:]
    text += binascii.b2a_base64(rest, newline=False)
    return _judge(place, head, bytes(text), size)


def _judge(place: Place, head: bytes, text: bytes, size: int) -> Fetched:
    """By its bytes: what the server says of its type may be anything."""
    mime: Any = sniff(head)
    if mime is None:
        raise UrlRefused(f"{place.host} sends {'nothing' if not size else 'no picture, clip or sound'}")
    return Fetched(f"data:{mime};base64,".encode() + text, mime, size)


def _too_many(place: Place, rules: FetchRules) -> UrlRefused:
    return UrlRefused(
        f"{place.host} sends more than the {rules.max_bytes:,} bytes that may be fetched for one request"
    )
