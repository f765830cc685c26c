"""Who may ask, for what, and how much: keys of clients, hashed at rest.

A key is 32 random bytes, so a plain SHA-256 of it is as good as any slow or salted hash: there is no list of
likely keys that a salt would spoil and no guess that slowness would hinder. And it needs one hash for any
number of keys: the digest of what a client sends is looked up in a dictionary. Its timing tells nothing that
helps: the dictionary compares digests, behind a keyed hash (SipHash) of its own, and nobody can choose a key
by its digest. A missing key and a wrong one take the same steps.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from datetime import UTC, datetime
from math import ceil
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from dabom.errors import (
    ClientGone,
    KeyConcurrency,
    KeyExpired,
    NotFound,
    RateLimited,
    RouteForbidden,
    Unauthorized,
)
from dabom.gateway import headers as head
from dabom.gateway.bucket import Bucket

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from dabom.gateway.account import Record
    from dabom.gateway.asgi import Headers
    from dabom.gateway.metrics import Metrics
    from dabom.gateway.settings import GatewaySettings

SINGLE = "api_key"
"""The id of the key that the setting `api_key` names."""
_HASH = re.compile(r"sha256:([0-9a-fA-F]{64})")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_WAIT_FOR_OWN_S = 1.0
_SHOWN = 20


def _check_id(ident: str) -> str:
    if not _ID.fullmatch(ident):
        raise ValueError("an id has up to 64 letters, digits, dots, underscores and hyphens")
    return ident


def _check_hash(line: str) -> str:
    """The message holds nothing of it: somebody may have put the key itself here."""
    if not _HASH.fullmatch(line):
        raise ValueError("a hash is sha256: and 64 hex digits; dabom keys new prints one")
    return line.lower()


class KeySettings(BaseModel):
    """One key of a client."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Annotated[str, AfterValidator(_check_id)] = Field(
        description="name of the key in logs, audit and metrics"
    )
    hash: Annotated[str, AfterValidator(_check_hash)] = Field(
        description="`sha256:` and the digest; `dabom keys new` prints it"
    )
    routes: frozenset[str] | None = Field(
        None, description="models and routes that it may use; unset: all of them"
    )
    priority: Literal["realtime", "normal", "batch"] | None = Field(
        None, description="priority of its requests, and the highest that a header may ask for"
    )
    requests_per_minute: int | None = Field(
        None, ge=1, description="requests, and items of batches, in a minute; unset: not limited"
    )
    tokens_per_minute: int | None = Field(
        None, ge=1, description="tokens of prompts and answers in a minute; unset: not limited"
    )
    concurrency: int | None = Field(None, ge=1, description="requests at work at a time; unset: not limited")
    expires: datetime | None = Field(
        None, description="when it stops to be good, such as 2027-01-31T00:00:00+09:00; unset: never"
    )


def _check_distinct(keys: tuple[KeySettings, ...]) -> tuple[KeySettings, ...]:
    ids = [key.id for key in keys]
    for number, key in enumerate(keys):
        if key.id == SINGLE or key.id in ids[:number]:
            raise ValueError(f"two keys have the id {key.id}; give each an id of its own")
        if key.hash in (other.hash for other in keys[:number]):
            raise ValueError(f"the key {key.id} is the same as another one; make a new one: dabom keys new")
        if key.hash == hash_line(""):
            raise ValueError(f"the key {key.id} is empty; make one: dabom keys new")
    return keys


KeyList = Annotated[tuple[KeySettings, ...], AfterValidator(_check_distinct)]
"""Keys with ids and secrets of their own."""


def digest(key: bytes) -> bytes:
    """What is kept of a key."""
    return hashlib.sha256(key).digest()


def hash_line(key: str) -> str:
    """The value of `hash` for a key."""
    return f"sha256:{digest(key.encode()).hex()}"


def is_hash(secret: str) -> bool:
    """Whether it is a `sha256:` line, which may be seen."""
    return _HASH.fullmatch(secret) is not None


def _digest_of(secret: str) -> bytes:
    """Of a key as it is, or of its `sha256:` line."""
    line = _HASH.fullmatch(secret)
    return bytes.fromhex(line[1]) if line else digest(secret.encode())


def find_twins(settings: GatewaySettings) -> tuple[str, str] | None:
    """Two settings that name one key: a client would be the admin, or have another one's limits."""
    seen = {bytes.fromhex(key.hash.removeprefix("sha256:")): f"the key {key.id}" for key in settings.keys}
    for name, secret in ((SINGLE, settings.api_key), ("admin_key", settings.admin_key)):
        if secret is not None:
            found = seen.setdefault(_digest_of(secret.get_secret_value()), name)
            if found != name:
                return name, found
    return None


class Holder:
    """One key, what it has at work, and what is left of its minute."""

    def __init__(self, settings: KeySettings, now: float) -> None:
        self.settings = settings
        self.running = 0
        self._requests = _bucket(settings.requests_per_minute, now)
        self._tokens = _bucket(settings.tokens_per_minute, now)

    def changed(self, settings: KeySettings, now: float) -> Holder:
        """The same holder with other limits; a limit that stays keeps what is left of its minute."""
        old, self.settings = self.settings, settings
        if settings.requests_per_minute != old.requests_per_minute:
            self._requests = _bucket(settings.requests_per_minute, now)
        if settings.tokens_per_minute != old.tokens_per_minute:
            self._tokens = _bucket(settings.tokens_per_minute, now)
        return self

    def begin(self, now: float, requests: int) -> None:
        """Start one more piece of work. What is refused costs nothing. Raises `TooManyRequests`."""
        limit, name = self.settings.concurrency, self.settings.id
        if limit is not None and self.running >= limit:
            raise KeyConcurrency(
                f"the key {name} has {self.running:,} requests at work; it may have {limit:,}; "
                "wait until one of them is answered",
                retry_after_s=_WAIT_FOR_OWN_S,
            )
        self._check(self._requests, requests, now, "requests")
        self._check(self._tokens, 1 if requests else 0, now, "tokens")
        if self._requests is not None:
            self._requests = self._requests.take(requests, now)
        self.running += 1

    def charge(self, tokens: int, now: float) -> None:
        """Take tokens. Raises `RateLimited`, and takes none, when they are not there."""
        self._check(self._tokens, tokens, now, "tokens")
        if self._tokens is not None:
            self._tokens = self._tokens.take(tokens, now)

    def settle(self, tokens: int, requests: int, now: float) -> None:
        """Give back what was taken and not used; a negative number is taken after the fact."""
        if self._tokens is not None and tokens:
            self._tokens = self._tokens.give(tokens, now)
        if self._requests is not None and requests:
            self._requests = self._requests.give(requests, now)

    def reserve(self, now: float) -> float:
        """Take a request that comes later; the seconds until it may come."""
        waits_s = [bucket.wait_s(1, now) for bucket in (self._requests, self._tokens) if bucket is not None]
        if self._requests is not None:
            self._requests = self._requests.take(1, now)
        return max(waits_s, default=0.0)

    def _check(self, bucket: Bucket | None, cost: int, now: float, what: str) -> None:
        wait_s = 0.0 if bucket is None or not cost else bucket.wait_s(cost, now)
        if bucket is not None and wait_s:
            raise RateLimited(
                f"the key {self.settings.id} may use {bucket.per_minute:,.0f} {what} a minute and has used "
                f"them; try again in {ceil(wait_s):,} s, or send less at once",
                retry_after_s=wait_s,
            )


def _bucket(per_minute: int | None, now: float) -> Bucket | None:
    return None if per_minute is None else Bucket.full(per_minute, now)


class KeyUse:
    """A key at work on one request: `with` it, and tell it what it costs."""

    __slots__ = ("_charged", "_holder", "_record", "_requests", "reached")

    def __init__(self, holder: Holder | None, record: Record, *, requests: int) -> None:
        self._holder = holder
        self._record = record
        self._requests = requests
        self._charged = 0
        self.reached = False
        """An upstream has been asked."""

    @property
    def id(self) -> str:
        """The id of the key; empty when there are no keys."""
        return "" if self._holder is None else self._holder.settings.id

    @property
    def priority(self) -> str | None:
        """What its requests have when no header says less; None: the key says nothing."""
        return None if self._holder is None else self._holder.settings.priority

    @property
    def metered(self) -> bool:
        """Whether the number of its tokens matters before the end of the request."""
        return self._holder is not None and self._holder.settings.tokens_per_minute is not None

    def __enter__(self) -> KeyUse:
        """Raises `KeyConcurrency` or `RateLimited`."""
        self._record.key = self.id
        if self._holder is not None:
            self._holder.begin(time.monotonic(), self._requests)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._holder is None:
            return
        self._holder.running -= 1
        code = self._record.code or getattr(error, "code", "")
        used, refund = _used(self._record, code, self._charged, reached=self.reached)
        self._holder.settle(self._charged - used, self._requests if refund else 0, time.monotonic())

    def may_use(self, names: Iterable[str]) -> bool:
        """Whether the key may use one of the names (a model's, its route's)."""
        allowed = None if self._holder is None else self._holder.settings.routes
        return allowed is None or not allowed.isdisjoint(names)

    def allow(self, *names: str) -> None:
        """Raises `RouteForbidden` unless the key may use one of the names."""
        if not self.may_use(names):
            allowed = frozenset() if self._holder is None else self._holder.settings.routes or frozenset()
            raise RouteForbidden(
                f"the key {self.id} may not use {names[0][:128] if names else 'this'}; "
                f"it may use {', '.join(sorted(allowed)[:_SHOWN]) or 'nothing'}",
                param="model",
            )

    def charge(self, tokens: int) -> None:
        """Take what the request will cost at most (prompt and answer). Raises `RateLimited`."""
        if self._holder is not None and self.metered:
            self._holder.charge(tokens, time.monotonic())
            self._charged += tokens

    def reserve(self) -> float:
        """Seconds to wait before the next item of a batch may be asked; it is counted now."""
        return 0.0 if self._holder is None else self._holder.reserve(time.monotonic())

    def release(self) -> None:
        """An item that was counted by `reserve` is not asked after all."""
        if self._holder is not None:
            self._holder.settle(0, 1, time.monotonic())

    def settle_item(self, record: Record, most: int) -> None:
        """Pay for an item that is over, `most` tokens when nobody tells; `reserve` has counted it."""
        if self._holder is not None:
            used, refund = _used(record, record.code, most, reached=True)
            self._holder.settle(-used, int(refund), time.monotonic())


class Keys:
    """All keys of a gateway. Without any, everybody may ask; then it must listen on loopback only."""

    def __init__(self, settings: GatewaySettings, metrics: Metrics, before: Keys | None = None) -> None:
        """`before`: the keys until now, whose holders stay what they are under the same id."""
        now = time.monotonic()
        given = list(settings.keys)
        if settings.api_key is not None:
            line = f"sha256:{_digest_of(settings.api_key.get_secret_value()).hex()}"
            given.insert(0, KeySettings(id=SINGLE, hash=line))
        known = {} if before is None else {h.settings.id: h for h in before.holders}
        for name in known.keys() - {one.id for one in given}:
            metrics.key_running.forget(name)
        self._by_digest = {
            bytes.fromhex(one.hash.removeprefix("sha256:")): known[one.id].changed(one, now)
            if one.id in known
            else Holder(one, now)
            for one in given
        }
        for holder in self.holders:
            _show(holder, metrics)
        admin = settings.admin_key
        self._admin = None if admin is None else _digest_of(admin.get_secret_value())

    @property
    def holders(self) -> Iterable[Holder]:
        """Each key with its state."""
        return self._by_digest.values()

    def find(self, headers: Headers, wall_s: float) -> Holder | None:
        """Whose request this is; None when there are no keys. Raises `Unauthorized`."""
        if not self._by_digest:
            return None
        holder = self._by_digest.get(digest(presented(headers)))
        if holder is None:
            raise Unauthorized(
                "the key is missing or wrong; send Authorization: Bearer with the gateway's key"
            )
        end = holder.settings.expires
        if end is not None and wall_s >= _as_utc(end).timestamp():
            raise KeyExpired(
                f"the key {holder.settings.id} was good until {end.isoformat()}; ask for a new one"
            )
        return holder

    def find_key(self, key: str) -> KeySettings | None:
        """The settings of a key, expired or not."""
        holder = self._by_digest.get(digest(key.encode()))
        return None if holder is None else holder.settings

    def check_page(self, headers: Headers, wall_s: float) -> None:
        """Pages may be read with any key, the admin's too. Raises `Unauthorized`."""
        if not self._is_admin(headers):
            self.find(headers, wall_s)

    def check_admin(self, headers: Headers, path: str) -> None:
        """Raises `NotFound` when there is no admin key, `Unauthorized` when another one is sent."""
        if self._admin is None:
            raise NotFound(f"there is nothing at {path[:200]}; set `admin_key` to have the admin's paths")
        if not self._is_admin(headers):
            raise Unauthorized("the admin's key is missing or wrong; send it as Authorization: Bearer")

    def _is_admin(self, headers: Headers) -> bool:
        return self._admin is not None and hmac.compare_digest(digest(presented(headers)), self._admin)


def _show(holder: Holder, metrics: Metrics) -> None:
    metrics.key_running.watch(holder.settings.id, read=lambda: holder.running)


def _used(record: Record, code: str, charged: int, *, reached: bool) -> tuple[int, bool]:
    """Tokens that were used, and whether the request reached no model and so costs nothing.

    What an upstream does not tell is taken for what was charged: a stream without its usage pays for its
    longest answer, and so does a client that leaves what an upstream was at work on.
    """
    if record.first_byte_ms is None:
        left = reached and code in ("", ClientGone.code)
        return (charged, False) if left else (0, bool(code))
    if record.status >= 400:
        return 0, False
    if record.prompt_tokens is None and record.answer_tokens is None:
        return charged, False
    return (record.prompt_tokens or 0) + (record.answer_tokens or 0), False


def presented(headers: Headers) -> bytes:
    """What a client sends as its key; empty when it sends none."""
    scheme, _, key = (head.find(headers, b"authorization") or b"").partition(b" ")
    return key.strip() if scheme.lower() == b"bearer" else b""


def _as_utc(moment: datetime) -> datetime:
    """A time without a zone is taken for UTC."""
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
