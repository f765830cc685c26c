"""Write a tiny random Qwen3-VL for llama.cpp: `python tiny_gguf.py FOLDER` makes model.gguf and mmproj.gguf.

Nothing is downloaded: weights come from a seeded generator, the vocabulary from the words below. Every path
of a real server is exercised (tokenising, decoding of pictures, vision encoder, sampling, grammars), and at
temperature 0 the reply depends on the prompt and on the pixels. Keys and tensor names are llama.cpp's own.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGUFWriter, TokenType

Weights = np.ndarray[tuple[int, ...], np.dtype[np.float32]]

WORDS = """
the a person walks across street with umbrella while it is raining and car stops at crossing video image scene
shows then after before camera left right close wide shot describe label score true false null name
안녕하세요 영상 장면 사람 비가 거리 우산 자동차 요약 설명 화면 소리 음악 배경 입니다 합니다 그리고 다음
"""
CONTROL = "<|im_end|> <|endoftext|> <|im_start|> <|vision_start|> <|vision_end|> <|image_pad|> <|video_pad|>"
PLAIN = ["<tool_call>", "</tool_call>"]

TEMPLATE = """
{%- if tools %}
    {{- '<|im_start|>system\\n<tools>' }}
    {%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
    {{- '\\n</tools>\\nAnswer with <tool_call>\\n{\\"name\\": <name>, \\"arguments\\": <object>}' }}
    {{- '\\n</tool_call><|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.content %}{{- message.content }}{%- endif %}
    {%- for call in message.tool_calls or [] %}
        {{- '<tool_call>\\n{\\"name\\": \\"' + call.function.name + '\\", \\"arguments\\": ' }}
        {%- set given = call.function.arguments %}
        {{- given if given is string else given | tojson }}
        {{- '}\\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
""".strip()

WIDTH, INNER, HEADS, HEAD_WIDTH, LAYERS = 64, 128, 2, 32, 2
PATCH, MERGE, IMAGE_PX, POSITIONS = 16, 2, 256, 256
CONTEXT = 32_768


@dataclass(frozen=True)
class Vocabulary:
    """A byte-level BPE whose words are reached by merges from the left."""

    tokens: list[str]
    merges: list[str]
    whole: frozenset[str]
    first_control: int

    @property
    def end(self) -> int:
        return self.first_control


def byte_letters() -> dict[int, str]:
    """GPT-2's printable stand-in for every byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {**{byte: chr(byte) for byte in plain}, **{byte: chr(256 + i) for i, byte in enumerate(others)}}


def make_vocabulary() -> Vocabulary:
    letters = byte_letters()
    tokens = list(letters.values())
    known = set(tokens)
    merges: list[str] = []
    whole = [
        "".join(letters[byte] for byte in f"{lead}{word}".encode())
        for word in WORDS.split()
        for lead in ("", " ")
    ]
    for word in whole:
        for end in range(2, len(word) + 1):
            if word[:end] not in known:
                known.add(word[:end])
                tokens.append(word[:end])
                merges.append(f"{word[: end - 1]} {word[end - 1]}")
    first_control = len(tokens)
    return Vocabulary([*tokens, *CONTROL.split(), *PLAIN], merges, frozenset(whole), first_control)


class Dice:
    """Random weights in a fixed order, so that every machine writes the same file."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.Generator(np.random.PCG64(seed))

    def normal(self, *shape: int) -> Weights:
        return (self._rng.standard_normal(shape) * 0.2).astype(np.float32)


def preference(vocabulary: Vocabulary, index: int) -> float:
    """How much a token is favoured whatever was asked: words read well, and replies and JSON strings end."""
    token = vocabulary.tokens[index]
    if index == vocabulary.end:
        return 1.2
    if index > vocabulary.end:
        return -30.0
    if token == '"':
        return 1.0
    if token in vocabulary.whole:
        return 0.0
    if token in (byte_letters()[byte] for byte in b" \t\r\n"):
        return -16.0
    return -7.0 if len(token) == 1 and token.isascii() else -12.0


def text_tensors(vocabulary: Vocabulary) -> dict[str, Weights]:
    """Dimension 0 of the hidden state is a constant that no layer writes to: it carries the preferences."""
    dice = Dice(0)
    size = len(vocabulary.tokens)
    embedding, output = dice.normal(size, WIDTH), dice.normal(size, WIDTH) * 1.3
    embedding[:, 0] = 4.0
    output[:, 0] = [preference(vocabulary, index) for index in range(size)]
    tensors = {"token_embd.weight": embedding, "output.weight": output, "output_norm.weight": ones(WIDTH)}
    for layer in range(LAYERS):
        block = {
            "attn_norm.weight": ones(WIDTH),
            "attn_q.weight": dice.normal(HEADS * HEAD_WIDTH, WIDTH),
            "attn_k.weight": dice.normal(HEAD_WIDTH, WIDTH),
            "attn_v.weight": dice.normal(HEAD_WIDTH, WIDTH),
            "attn_q_norm.weight": ones(HEAD_WIDTH),
            "attn_k_norm.weight": ones(HEAD_WIDTH),
            "attn_output.weight": dice.normal(WIDTH, HEADS * HEAD_WIDTH),
            "ffn_norm.weight": ones(WIDTH),
            "ffn_gate.weight": dice.normal(INNER, WIDTH),
            "ffn_up.weight": dice.normal(INNER, WIDTH),
            "ffn_down.weight": dice.normal(WIDTH, INNER),
        }
        block["attn_norm.weight"][0] = block["ffn_norm.weight"][0] = 0
        block["attn_output.weight"][0] = block["ffn_down.weight"][0] = 0
        tensors |= {f"blk.{layer}.{name}": weights for name, weights in block.items()}
    return tensors


def vision_tensors() -> dict[str, Weights]:
    dice = Dice(1)
    merged = WIDTH * MERGE * MERGE
    tensors = {
        "v.patch_embd.weight": dice.normal(WIDTH, 3, PATCH, PATCH),
        "v.patch_embd.weight.1": dice.normal(WIDTH, 3, PATCH, PATCH),
        "v.patch_embd.bias": zeros(WIDTH),
        "v.position_embd.weight": dice.normal(POSITIONS, WIDTH),
        "v.post_ln.weight": ones(WIDTH),
        "v.post_ln.bias": zeros(WIDTH),
        **linear(dice, "mm.0", merged, merged),
        **linear(dice, "mm.2", merged, WIDTH),
        "v.deepstack.0.norm.weight": ones(merged),
        "v.deepstack.0.norm.bias": zeros(merged),
        **linear(dice, "v.deepstack.0.fc1", merged, merged),
        **linear(dice, "v.deepstack.0.fc2", merged, WIDTH),
    }
    for layer in range(LAYERS):
        tensors |= linear(dice, f"v.blk.{layer}.attn_qkv", WIDTH, 3 * WIDTH)
        tensors |= linear(dice, f"v.blk.{layer}.attn_out", WIDTH, WIDTH)
        tensors |= linear(dice, f"v.blk.{layer}.ffn_up", WIDTH, INNER)
        tensors |= linear(dice, f"v.blk.{layer}.ffn_down", INNER, WIDTH)
        for norm in ("ln1", "ln2"):
            tensors |= {
                f"v.blk.{layer}.{norm}.weight": ones(WIDTH),
                f"v.blk.{layer}.{norm}.bias": zeros(WIDTH),
            }
    return tensors


def linear(dice: Dice, name: str, inputs: int, outputs: int) -> dict[str, Weights]:
    return {f"{name}.weight": dice.normal(outputs, inputs), f"{name}.bias": zeros(outputs)}


def ones(size: int) -> Weights:
    return np.ones(size, np.float32)


def zeros(size: int) -> Weights:
    return np.zeros(size, np.float32)


def write_model(path: Path) -> None:
    vocabulary = make_vocabulary()
    writer = GGUFWriter(path, "qwen3vl")
    writer.add_name("tiny-qwen3-vl")
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(1)
    writer.add_key_length(HEAD_WIDTH)
    writer.add_value_length(HEAD_WIDTH)
    writer.add_rope_dimension_sections([6, 5, 5, 0])
    writer.add_rope_freq_base(5_000_000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_num_deepstack_layers(1)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(vocabulary.tokens)
    kinds = [TokenType.NORMAL] * vocabulary.first_control
    kinds += [TokenType.CONTROL] * len(CONTROL.split()) + [TokenType.USER_DEFINED] * len(PLAIN)
    writer.add_token_types(kinds)
    writer.add_token_merges(vocabulary.merges)
    writer.add_eos_token_id(vocabulary.end)
    writer.add_pad_token_id(vocabulary.end + 1)
    writer.add_bos_token_id(vocabulary.end + 1)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    finish(writer, text_tensors(vocabulary))


def write_mmproj(path: Path) -> None:
    writer = GGUFWriter(path, "clip")
    writer.add_type("mmproj")
    writer.add_name("tiny-qwen3-vl")
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type("qwen3vl_merger")
    writer.add_vision_use_gelu(True)
    writer.add_vision_projection_dim(WIDTH)
    writer.add_vision_image_size(IMAGE_PX)
    writer.add_vision_patch_size(PATCH)
    writer.add_vision_embedding_length(WIDTH)
    writer.add_vision_feed_forward_length(INNER)
    writer.add_vision_block_count(LAYERS)
    writer.add_vision_head_count(HEADS)
    writer.add_vision_image_mean([0.5, 0.5, 0.5])
    writer.add_vision_image_std([0.5, 0.5, 0.5])
    writer.add_vision_spatial_merge_size(MERGE)
    writer.add_vision_attention_layernorm_eps(1e-6)
    writer.add_vision_is_deepstack_layers([True, *[False] * (LAYERS - 1)])
    finish(writer, vision_tensors())


def finish(writer: GGUFWriter, tensors: dict[str, Weights]) -> None:
    for name, weights in tensors.items():
        writer.add_tensor(name, weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    write_model(folder / "model.gguf")
    write_mmproj(folder / "mmproj.gguf")
