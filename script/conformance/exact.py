"""Tiny random checkpoints that count as the released ones do: the real vocabulary, the shipped limits.

`python -m script.conformance.exact FAMILY VOCABULARY FOLDER`, in vLLM's environment.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from script.conformance import qwen3_omni, qwen3_vl
from script.conformance.tokenizer import change_json, write_tokenizer
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

QWEN2 = {"patch_size": 14, "temporal_patch_size": 2, "merge_size": 2}
QWEN3 = {"patch_size": 16, "temporal_patch_size": 2, "merge_size": 2}
GREY = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
CLIP = {
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
SOUND = {
    "dither": 0.0,
    "feature_extractor_type": "WhisperFeatureExtractor",
    "feature_size": 128,
    "hop_length": 160,
    "n_fft": 400,
    "n_samples": 4_800_000,
    "nb_max_frames": 30_000,
    "padding_side": "right",
    "padding_value": 0.0,
    "return_attention_mask": True,
    "sampling_rate": 16_000,
}
# The files as they are released; only Qwen3-VL has one for video.
FILES: dict[str, dict[str, dict[str, Any]]] = {
    "qwen3-vl": {
        "preprocessor_config": {
            "size": {"longest_edge": 16_777_216, "shortest_edge": 65_536},
            "processor_class": "Qwen3VLProcessor",
            "image_processor_type": "Qwen2VLImageProcessorFast",
            **QWEN3,
            **GREY,
        },
        "video_preprocessor_config": {
            "size": {"longest_edge": 25_165_824, "shortest_edge": 4096},
            "processor_class": "Qwen3VLProcessor",
            "video_processor_type": "Qwen3VLVideoProcessor",
            **QWEN3,
            **GREY,
        },
    },
    "qwen2.5-vl": {
        "preprocessor_config": {
            "min_pixels": 3136,
            "max_pixels": 12_845_056,
            "processor_class": "Qwen2_5_VLProcessor",
            "image_processor_type": "Qwen2VLImageProcessor",
            **QWEN2,
            **CLIP,
        },
    },
    "qwen3-omni": {
        "preprocessor_config": {
            "min_pixels": 3136,
            "max_pixels": 12_845_056,
            "processor_class": qwen3_omni.CLASS,
            "image_processor_type": "Qwen2VLImageProcessor",
            **QWEN3,
            **GREY,
            **SOUND,
        },
    },
}


def write_qwen25(folder: Path, tokenizer: Any) -> None:
    number = tokenizer.convert_tokens_to_ids
    text = qwen3_vl.text_config(tokenizer)
    text.pop("head_dim")
    text["rope_parameters"] = {"rope_type": "default", "rope_theta": 1_000_000, "mrope_section": [6, 5, 5]}
    config = Qwen2_5_VLConfig(
        text_config=text,
        vision_config={
            "depth": 1,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_heads": 2,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "out_hidden_size": 64,
            "window_size": 112,
            "fullatt_block_indexes": [0],
            "tokens_per_second": 2,
            "initializer_range": 0.2,
        },
        image_token_id=number("<|image_pad|>"),
        video_token_id=number("<|video_pad|>"),
        vision_start_token_id=number("<|vision_start|>"),
        vision_end_token_id=number("<|vision_end|>"),
        tie_word_embeddings=False,
    )
    torch.manual_seed(0)
    Qwen2_5_VLForConditionalGeneration(config).to(torch.bfloat16).eval().save_pretrained(folder)


def write_checkpoint(family: str, vocabulary: Path, folder: Path) -> None:
    tokenizer = write_tokenizer(folder, sound=family == "qwen3-omni", vocabulary=vocabulary)
    if family == "qwen3-vl":
        qwen3_vl.write_weights(folder, tokenizer)
    elif family == "qwen3-omni":
        qwen3_omni.write_config(folder, tokenizer, qwen3_omni.write_weights(folder, tokenizer))
        change_json(folder / "tokenizer_config.json", {"processor_class": qwen3_omni.CLASS})
    else:
        write_qwen25(folder, tokenizer)
    qwen3_vl.write_generation(folder, tokenizer)
    for name, values in FILES[family].items():
        (folder / f"{name}.json").write_text(json.dumps(values, indent=1), encoding="utf-8")


if __name__ == "__main__":
    target = Path(sys.argv[3])
    target.mkdir(parents=True, exist_ok=True)
    write_checkpoint(sys.argv[1], Path(sys.argv[2]), target)
