"""What an upstream says of itself in the list of its models."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, get_args

import msgspec

from dabom.errors import UpstreamBroken, UpstreamUnreachable
from dabom.gateway.routing.settings import Modality

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dabom.gateway.upstream import Upstream

_MAX_LIST_BYTES = 4 * 2**20
_MODALITIES: frozenset[str] = frozenset(get_args(Modality))


class Offer(NamedTuple):
    """One model. `entry` is all that the upstream says of it, as it says it.

    `max_model_len` in tokens, prompt and answer: vLLM's own, or llama.cpp's `n_ctx`. `modalities` are
    llama.cpp's; vLLM tells none.
    """

    entry: msgspec.Raw
    max_model_len: int | None
    modalities: frozenset[Modality] | None


class _Meta(msgspec.Struct):
    n_ctx: int | None = None


class _Architecture(msgspec.Struct):
    input_modalities: list[str] | None = None


class _Model(msgspec.Struct):
    id: str
    max_model_len: int | None = None
    meta: _Meta | None = None
    architecture: _Architecture | None = None


class _Name(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[msgspec.Raw]


def read_offers(text: bytes) -> dict[str, Offer]:
    """The models by their names. Raises `ValueError` for what is no list of models."""
    try:
        models = msgspec.json.decode(text, type=_Models)
        return {msgspec.json.decode(raw, type=_Name).id: _read(raw) for raw in models.data}
    except (msgspec.DecodeError, RecursionError):
        raise ValueError("no list of models") from None


def _read(raw: msgspec.Raw) -> Offer:
    try:
        model = msgspec.json.decode(raw, type=_Model)
    except msgspec.DecodeError:
        return Offer(raw, None, None)  # a name is all that must be right
    length = model.max_model_len or (model.meta.n_ctx if model.meta else None)
    told = model.architecture.input_modalities if model.architecture else None
    modalities = None if told is None else frozenset(_MODALITIES & set(told))
    return Offer(raw, length if length and length > 0 else None, modalities)  # type: ignore[arg-type]


async def ask_offers(upstream: Upstream, timeout_s: float) -> Mapping[str, Offer]:
    """Ask an upstream for its models. Raises `UpstreamError`."""
    headers = [(b"accept", b"application/json")]
    if upstream.authorization is not None:
        headers.append((b"authorization", upstream.authorization))
    try:
        async with asyncio.timeout(timeout_s):
            answer = await upstream.send("GET", "/models", headers)
            try:
                if answer.status != 200:
                    raise UpstreamBroken(f"upstream {upstream.name} answers {answer.status} to GET /models")
                text = await answer.read_all(_MAX_LIST_BYTES)
            finally:
                answer.close()
    except TimeoutError:
        raise UpstreamUnreachable(f"upstream {upstream.name} does not answer in {timeout_s:g} s") from None
    try:
        return read_offers(text)
    except ValueError:
        raise UpstreamBroken(f"upstream {upstream.name} gives no list at GET /models") from None
