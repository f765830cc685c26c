"""Outside URLs over real sockets."""

from __future__ import annotations

import asyncio
import base64
import io
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pytest
from PIL import Image

from dabom.errors import UrlRefused
from dabom.media.fetch import FetchRules, Room, choose_address, fetch, names, read_url

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

LOOPBACK = ("127.0.0.0/8",)


def picture() -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (40, 30), "teal").save(out, "PNG")
    return out.getvalue()


def reply(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


class Host:
    """A server on a port of its own that answers by path and keeps what it was asked."""

    def __init__(self, answers: dict[str, bytes]) -> None:
        self.answers = answers
        self.seen: list[bytes] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.seen.append(head)
        writer.write(self.answers[head.split(b" ")[1].decode()])
        await writer.drain()

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"


@asynccontextmanager
async def listening(serve: Serve) -> AsyncIterator[int]:
    """A port on which `serve` answers; all that was accepted is closed in the end."""
    tasks: set[asyncio.Task[None]] = set()

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.create_task(run(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
    await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)


@asynccontextmanager
async def serving(**answers: bytes) -> AsyncIterator[Host]:
    host = Host({"/" + name.replace("_", "."): answer for name, answer in answers.items()})
    async with listening(host.serve) as port:
        host.port = port
        yield host


def rules(*allow: str, max_bytes: int = 100_000, timeout_s: float = 5.0) -> FetchRules:
    return FetchRules(allow or LOOPBACK, max_bytes, timeout_s)


async def test_a_listed_host_is_asked_and_its_bytes_tell_the_type() -> None:
    async with serving(a_png=reply(picture(), "Content-Type: text/html")) as host:
        found = await fetch(host.url("/a.png"), rules())
    assert (found.mime, found.size) == ("image/png", len(picture()))
    head, _, text = found.uri.partition(b",")
    assert head == b"data:image/png;base64"
    assert base64.b64decode(text, validate=True) == picture()


async def test_nothing_of_the_client_goes_along() -> None:
    async with serving(a_png=reply(picture())) as host:
        await fetch(host.url("/a.png"), rules())
    assert b"authorization" not in host.seen[0].lower()
    assert b"cookie" not in host.seen[0].lower()


async def test_nothing_is_opened_without_a_list() -> None:
    async with serving(a_png=reply(picture())) as host:
        with pytest.raises(UrlRefused, match="data: URL"):
            await fetch(host.url("/a.png"), FetchRules())
        with pytest.raises(UrlRefused, match="allow-list"):
            await fetch(host.url("/a.png"), rules("10.0.0.0/8", "nas.example"))
    assert not host.seen


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "FILE:///etc/passwd",
        "ftp://127.0.0.1/a",
        "gopher://127.0.0.1/",
        "/etc/passwd",
        "http://user:word@127.0.0.1/a.png",
        "http://127.0.0.1:99999/",
        "http:///a.png",
        "http://127.0.0.1/a b",
        "http://127.0.0.1\\@example.com/",
        "http://[::1/",
    ],
)
async def test_what_is_never_opened(url: str) -> None:
    with pytest.raises(UrlRefused):
        await fetch(url, rules("127.0.0.1", "::1", "localhost"))


async def test_a_redirect_is_checked_like_the_first_url() -> None:
    async with (
        serving(secret=reply(picture())) as inner,
        serving(
            out=reply(b"", f"Location: {inner.url('/secret', '127.0.0.2')}", status="302 Found"),
            file=reply(b"", "Location: file:///etc/passwd", status="301 Moved"),
            back=reply(b"", "Location: /a.png", status="307 Temporary Redirect"),
            a_png=reply(picture()),
            loop=reply(b"", "Location: /loop", status="302 Found"),
        ) as host,
    ):
        with pytest.raises(UrlRefused, match=r"127\.0\.0\.2"):
            await fetch(host.url("/out"), rules("127.0.0.1"))
        with pytest.raises(UrlRefused, match="never opened"):
            await fetch(host.url("/file"), rules("127.0.0.1"))
        with pytest.raises(UrlRefused, match="more than 3"):
            await fetch(host.url("/loop"), rules("127.0.0.1"))
        assert (await fetch(host.url("/back"), rules("127.0.0.1"))).mime == "image/png"
    assert not inner.seen


async def test_a_name_is_resolved_once_and_its_address_kept() -> None:
    asked = []

    async def rebinding(host: str, port: int) -> list[str]:
        asked.append((host, port))
        return ["127.0.0.1"] if len(asked) == 1 else ["203.0.113.9"]

    async with serving(a_png=reply(picture())) as host:
        found = await fetch(host.url("/a.png", "nas.test"), rules("nas.test", "127.0.0.0/8"), rebinding)
        assert found.mime == "image/png"
    assert asked == [("nas.test", host.port)]
    assert f"host: nas.test:{host.port}".encode() in host.seen[0].lower()


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "10.1.2.3", "169.254.169.254", "::1", "::ffff:10.1.2.3", "fd00::5", "0.0.0.1"]
)
def test_a_listed_name_with_a_private_address_needs_its_network(address: str) -> None:
    place = read_url("http://nas.example/a")
    with pytest.raises(UrlRefused, match="private"):
        choose_address(place, [address], ["nas.example"])
    plain = address.removeprefix("::ffff:")
    assert choose_address(place, [address], ["nas.example", plain]) == address
    assert choose_address(place, [address], [plain]) == address


def test_a_public_address_needs_a_listed_name() -> None:
    place = read_url("https://nas.example/a")
    assert choose_address(place, ["8.8.8.8"], ["NAS.example."]) == "8.8.8.8"
    assert choose_address(place, ["10.0.0.1", "8.8.8.8"], ["*.example"]) == "8.8.8.8"
    for allow in ([], ["as.example"], ["*.nas.example"], ["10.0.0.0/8"]):
        with pytest.raises(UrlRefused, match="allow-list"):
            choose_address(place, ["8.8.8.8"], allow)
    with pytest.raises(UrlRefused):
        choose_address(place, ["224.0.0.1"], ["nas.example"])
    with pytest.raises(UrlRefused):
        choose_address(place, [], ["nas.example"])


def test_names_below_a_domain() -> None:
    assert names("a.b.example", ["*.example"])
    assert not names("example", ["*.example"])
    assert not names("evilexample", ["*.example"])


@pytest.mark.parametrize("form", ["0x7f.0.0.1", "2130706433", "127.1"])
async def test_odd_spellings_of_an_address_are_judged_by_where_they_lead(form: str) -> None:
    async with serving(a_png=reply(picture())) as host:
        with pytest.raises(UrlRefused):
            await fetch(host.url("/a.png", form), rules("10.0.0.0/8", form))
    assert not host.seen


async def test_sizes_are_bounded_whatever_is_declared() -> None:
    large = picture() + bytes(200_000)
    chunks = b"".join(b"%x\r\n%b\r\n" % (10_000, bytes(10_000)) for _ in range(20))
    streamed = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    async with serving(a=reply(large), b=streamed) as host:
        for path in ("/a", "/b"):
            with pytest.raises(UrlRefused, match="more than the 100,000 bytes"):
                await fetch(host.url(path), rules())


async def test_time_is_bounded() -> None:
    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with listening(silent) as port:
        with pytest.raises(UrlRefused, match="longer than"):
            await fetch(f"http://127.0.0.1:{port}/", rules(timeout_s=0.2))


async def test_answers_that_are_no_media() -> None:
    async with serving(
        text=reply(b"<html>hello</html>"),
        none=reply(b""),
        gone=reply(b"no", status="404 Not Found"),
        zip=reply(picture(), "Content-Encoding: gzip"),
        cut=reply(picture())[:-30],
    ) as host:
        for path, why in (
            ("text", "no picture"),
            ("none", "nothing"),
            ("gone", "404"),
            ("zip", "compressed"),
        ):
            with pytest.raises(UrlRefused, match=why):
                await fetch(host.url(f"/{path}"), rules())
        with pytest.raises(UrlRefused, match="could not be asked"):
            await fetch(host.url("/cut"), rules())


async def test_nobody_listens() -> None:
    async with serving() as host:
        port = host.port
    with pytest.raises(UrlRefused, match="could not be asked"):
        await fetch(f"http://127.0.0.1:{port}/", rules())


async def test_messages_do_not_show_the_path() -> None:
    async with serving(token=reply(b"no", status="403 Forbidden")) as host:
        with pytest.raises(UrlRefused) as caught:
            await fetch(host.url("/token"), rules())
    assert "token" not in caught.value.message


async def test_several_files_share_what_one_request_may_fetch() -> None:
    content = picture()
    async with serving(a_png=reply(content), b_png=reply(content)) as host:
        room = Room(len(content) + 10)
        assert (await fetch(host.url("/a.png"), rules(), room=room)).size == len(content)
        with pytest.raises(UrlRefused, match="for one request"):
            await fetch(host.url("/b.png"), rules(), room=room)
