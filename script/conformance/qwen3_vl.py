"""A tiny random Qwen3-VL checkpoint: `python -m script.conformance.qwen3_vl FOLDER`.

Run in vLLM's environment.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from script.conformance.tokenizer import prefer_words, write_tokenizer
from transformers import (
    GenerationConfig,
    Qwen2VLImageProcessor,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)

PATCHES = {"patch_size": 16, "temporal_patch_size": 2, "merge_size": 2}
GREY = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
VISION = {
    "depth": 2,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_heads": 2,
    "patch_size": 16,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "out_hidden_size": 64,
    "num_position_embeddings": 256,
    "deepstack_visual_indexes": [0],
    "initializer_range": 0.2,
}


def round_up(size: int) -> int:
    return (size + 63) // 64 * 64


def text_config(tokenizer: Any) -> dict[str, Any]:
    number = tokenizer.convert_tokens_to_ids
    return {
        "vocab_size": round_up(len(tokenizer)),
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "max_position_embeddings": 32_768,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 5_000_000,
            "mrope_section": [6, 5, 5],
            "mrope_interleaved": True,
        },
        "bos_token_id": number("<|endoftext|>"),
        "eos_token_id": number("<|im_end|>"),
        "pad_token_id": number("<|endoftext|>"),
        "tie_word_embeddings": False,
        "initializer_range": 0.2,
    }


def write_weights(folder: Path, tokenizer: Any) -> None:
    number = tokenizer.convert_tokens_to_ids
    config = Qwen3VLConfig(
        text_config=text_config(tokenizer),
        vision_config=VISION,
        image_token_id=number("<|image_pad|>"),
        video_token_id=number("<|video_pad|>"),
        vision_start_token_id=number("<|vision_start|>"),
        vision_end_token_id=number("<|vision_end|>"),
        tie_word_embeddings=False,
    )
    torch.manual_seed(0)
    model = Qwen3VLForConditionalGeneration(config).to(torch.bfloat16).eval()
    prefer_words(model.model.language_model, model.lm_head, tokenizer)
    model.save_pretrained(folder)


def write_processors(folder: Path, tokenizer: Any) -> None:
    image = Qwen2VLImageProcessor(size={"shortest_edge": 4096, "longest_edge": 262_144}, **PATCHES, **GREY)
    clip_size = {"shortest_edge": 4096, "longest_edge": 1_048_576}
    video = Qwen3VLVideoProcessor(size=clip_size, fps=2, min_frames=4, max_frames=32, **PATCHES)
    both = Qwen3VLProcessor(
        image_processor=image,
        tokenizer=tokenizer,
        video_processor=video,
        chat_template=tokenizer.chat_template,
    )
    both.save_pretrained(folder)
    for processor, name in ((image, "preprocessor_config"), (video, "video_preprocessor_config")):
        values = {**processor.to_dict(), "processor_class": "Qwen3VLProcessor"}
        (folder / f"{name}.json").write_text(json.dumps(values, indent=1), encoding="utf-8")


def write_generation(folder: Path, tokenizer: Any) -> None:
    end, pad = tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    config = GenerationConfig(
        do_sample=True, temperature=0.7, top_p=0.8, top_k=20, pad_token_id=pad, eos_token_id=[end, pad]
    )
    config.save_pretrained(folder)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    words = write_tokenizer(target)
    write_weights(target, words)
    write_processors(target, words)
    write_generation(target, words)
