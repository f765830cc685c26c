"""The tokenizer and chat template of the tiny models, and the bias that makes their replies end."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import Qwen2TokenizerFast

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SPECIALS = """
<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|>
<|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|>
"""
SOUND_SPECIALS = """
<|audio_start|> <|audio_end|> <|audio_pad|> <tts_pad> <tts_text_bos> <tts_text_eod> <tts_text_bos_single>
"""
PLAIN = "<tool_call> </tool_call> <tool_response> </tool_response> <think> </think>"
SOUND_NAMES = {
    "image_token": "<|image_pad|>",
    "audio_token": "<|audio_pad|>",
    "video_token": "<|video_pad|>",
    "vision_bos_token": "<|vision_start|>",
    "vision_eos_token": "<|vision_end|>",
    "audio_bos_token": "<|audio_start|>",
    "audio_eos_token": "<|audio_end|>",
}
# Qwen's own rule for cutting text into pieces
PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
ENGLISH = """
the a person walks across a street with an umbrella while it is raining and a car stops at the crossing
video image frame audio second minute shows then after before camera pans left right close up wide shot
system user assistant You are a helpful assistant. describe summarize caption scene object label score type
properties required string number integer array boolean true false null title description items
"""
KOREAN = """
안녕하세요 영상 이미지 장면 사람 걷는다 비가 오는 거리 우산 자동차 신호등 요약 설명 카메라 화면 소리 음악
배경 입니다 합니다 있습니다 그리고 다음 장면에서 한 남자가 여자가 아이가 강아지와 공원에서 뛰어 놀고 있다
"""


def sentences() -> Iterator[str]:
    dice = random.Random(0)
    english, korean = ENGLISH.split(), KOREAN.split()
    for _ in range(2500):
        yield " ".join(dice.choice(english) for _ in range(12)) + "."
        yield " ".join(dice.choice(korean) for _ in range(10)) + "."
        names = {dice.choice(english): dice.choice(english), dice.choice(english): dice.randint(0, 999)}
        mixed = {**names, dice.choice(korean): [dice.choice(korean), dice.random() < 0.5]}
        yield json.dumps(mixed, ensure_ascii=False)


def write_tokenizer(folder: Path, *, sound: bool = False, vocabulary: Path | None = None) -> Any:
    """Train and save the tokenizer in the layout of a released Qwen; returns it.

    With `vocabulary`, a folder of script/conformance/vocabulary.py, it is the released one.
    """
    if vocabulary is None:
        write_merges(folder)
    else:
        for name in ("vocab.json", "merges.txt"):
            shutil.copy(vocabulary / name, folder / name)
    ends = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "unk_token": None, "bos_token": None}
    tokenizer = Qwen2TokenizerFast.from_pretrained(str(folder), **ends)
    names = f"{SPECIALS} {SOUND_SPECIALS}" if sound else SPECIALS
    special = [AddedToken(name, special=True, normalized=False) for name in names.split()]
    tokenizer.add_tokens(special, special_tokens=True)
    tokenizer.add_tokens([AddedToken(name, special=False, normalized=False) for name in PLAIN.split()])
    template = Path(__file__).with_name("chat_template.jinja").read_text(encoding="utf-8")
    roles: dict[str, str] = SOUND_NAMES if sound else {}
    tokenizer.init_kwargs.update(roles)
    tokenizer.chat_template = template
    tokenizer.save_pretrained(str(folder))
    change_json(folder / "tokenizer_config.json", {**roles, "tokenizer_class": "Qwen2Tokenizer"})
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": template}), encoding="utf-8")
    return tokenizer


def write_merges(folder: Path) -> None:
    bpe = Tokenizer(models.BPE(byte_fallback=False, fuse_unk=False))
    bpe.normalizer = normalizers.NFC()
    cut = pre_tokenizers.Split(Regex(PIECES), behavior="isolated")
    octets = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bpe.pre_tokenizer = pre_tokenizers.Sequence([cut, octets])
    bpe.decoder = decoders.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=1024, initial_alphabet=alphabet, show_progress=False)
    bpe.train_from_iterator(sentences(), trainer)
    model = json.loads(bpe.to_str())["model"]
    merges = [" ".join(pair) if isinstance(pair, list) else pair for pair in model["merges"]]
    (folder / "vocab.json").write_text(json.dumps(model["vocab"], ensure_ascii=False), encoding="utf-8")
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", encoding="utf-8")


def change_json(path: Path, values: dict[str, Any]) -> None:
    found = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**found, **values}, indent=1, ensure_ascii=False), encoding="utf-8")


def prefer_words(text_model: Any, lm_head: Any, tokenizer: Any) -> None:
    """Give random weights replies that read as words and end.

    Dimension 0 of the hidden state becomes a constant that no layer writes to, so `lm_head[:, 0]` is a bias
    per token. The rest stays random: a reply still depends on every token, picture and sound of the prompt.
    """
    with torch.no_grad():
        text_model.embed_tokens.weight[:, 0] = 4.0
        for layer in text_model.layers:
            layer.input_layernorm.weight[0] = 0
            layer.post_attention_layernorm.weight[0] = 0
            layer.self_attn.o_proj.weight[0, :] = 0
            for name, weights in layer.mlp.named_parameters():
                if name.endswith("down_proj.weight"):
                    weights[0, :] = 0
                elif name.endswith("down_proj"):
                    weights[:, 0, :] = 0  # packed experts: expert, hidden, inner
        lm_head.weight.mul_(1.3)
        for index, value in enumerate(biases(tokenizer, lm_head.weight.shape[0])):
            lm_head.weight[index, 0] = value


def biases(tokenizer: Any, size: int) -> Sequence[float]:
    added = set(tokenizer.get_added_vocab().values())
    values = []
    for index in range(size):
        token = tokenizer.decode([index]) if index < len(tokenizer) else ""
        if index == tokenizer.eos_token_id:
            values.append(1.2)
        elif index >= len(tokenizer) or index in added:
            values.append(-30.0)
        else:
            values.append(bias(token))
    return values


def bias(piece: str) -> float:
    """Words first, quotes so that JSON strings end, white space last: grammars let it go on for ever."""
    word = piece.strip()
    if piece == '"':
        return 1.0
    if not word:
        return -16.0
    if "\ufffd" in piece or any(ord(letter) < 32 for letter in piece):
        return -12.0
    return 0.0 if word.isalpha() and (len(word) >= 3 or word[0] >= "가") else -7.0
