"""A tiny random Qwen3-Omni checkpoint, the Thinker only: `python -m script.conformance.qwen3_omni FOLDER`.

Run in vLLM's environment. Some keys that vLLM reads are not written by transformers and are put in by hand.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from script.conformance.qwen3_vl import GREY, PATCHES, VISION, text_config, write_generation
from script.conformance.tokenizer import change_json, prefer_words, write_tokenizer
from transformers import (
    Qwen2VLImageProcessor,
    Qwen2VLVideoProcessor,
    Qwen3OmniMoeConfig,
    Qwen3OmniMoeThinkerConfig,
    Qwen3OmniMoeThinkerForConditionalGeneration,
    WhisperFeatureExtractor,
)

CLASS = "Qwen3OmniMoeProcessor"
SOUND = {
    "num_mel_bins": 128,
    "encoder_layers": 1,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 128,
    "d_model": 64,
    "max_source_positions": 1500,
    "n_window": 50,
    "n_window_infer": 800,
    "output_dim": 64,
    "conv_chunksize": 500,
    "downsample_hidden_size": 32,
    "initializer_range": 0.1,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
NUMBERED = {
    "vision_start_token_id": "<|vision_start|>",
    "vision_end_token_id": "<|vision_end|>",
    "audio_end_token_id": "<|audio_end|>",
}


def thinker_config(tokenizer: Any) -> Any:
    number = tokenizer.convert_tokens_to_ids
    text = text_config(tokenizer)
    text["rope_parameters"]["rope_theta"] = 1_000_000
    config = Qwen3OmniMoeThinkerConfig(
        audio_config=SOUND,
        vision_config=VISION,
        text_config={**text, **EXPERTS},
        position_id_per_seconds=13,
        audio_start_token_id=number("<|audio_start|>"),
        user_token_id=number("user") or 0,
        audio_token_id=number("<|audio_pad|>"),
        image_token_id=number("<|image_pad|>"),
        video_token_id=number("<|video_pad|>"),
        initializer_range=0.2,
    )
    for name, token in NUMBERED.items():
        setattr(config, name, number(token))
    return config


def write_weights(folder: Path, tokenizer: Any) -> Any:
    config = thinker_config(tokenizer)
    torch.manual_seed(0)
    model = Qwen3OmniMoeThinkerForConditionalGeneration(config).to(torch.bfloat16).eval()
    prefer_words(model.model, model.lm_head, tokenizer)
    model.save_pretrained(folder / "thinker")
    merge_weights(folder)
    return config


def merge_weights(folder: Path) -> None:
    """The released checkpoint has the Thinker's tensors under `thinker.`."""
    files = sorted((folder / "thinker").iterdir())
    tensors = {
        f"thinker.{name}": tensor
        for file in files
        if file.suffix == ".safetensors"
        for name, tensor in load_file(str(file)).items()
    }
    save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})
    for file in files:
        file.unlink()
    (folder / "thinker").rmdir()


def write_config(folder: Path, tokenizer: Any, thinker: Any) -> None:
    number = tokenizer.convert_tokens_to_ids
    config = Qwen3OmniMoeConfig(
        thinker_config=thinker.to_dict(),
        enable_audio_output=False,
        im_start_token_id=number("<|im_start|>"),
        im_end_token_id=number("<|im_end|>"),
        tts_pad_token_id=number("<tts_pad>"),
        tts_bos_token_id=number("<tts_text_bos>"),
        tts_eos_token_id=number("<tts_text_eod>"),
        system_token_id=number("system") or 0,
        user_token_id=number("user") or 0,
        assistant_token_id=number("assistant") or 0,
    )
    values = config.to_dict()
    for part in ("talker_config", "code2wav_config"):
        values.pop(part, None)
    values.update(
        architectures=["Qwen3OmniMoeForConditionalGeneration"], dtype="bfloat16", enable_audio_output=False
    )
    inner = values["thinker_config"]
    inner["vision_config"].update(image_size=256, in_chans=3, apply_vit_abs_pos_embed=True)
    inner["text_config"]["tie_word_embeddings"] = False
    inner.update({name: number(token) for name, token in NUMBERED.items()}, dtype="bfloat16")
    (folder / "config.json").write_text(json.dumps(values, indent=1, default=str), encoding="utf-8")


def write_processors(folder: Path) -> None:
    sound = WhisperFeatureExtractor(feature_size=128, chunk_length=30, n_fft=400, return_attention_mask=True)
    image = Qwen2VLImageProcessor(size={"shortest_edge": 4096, "longest_edge": 262_144}, **PATCHES, **GREY)
    video = Qwen2VLVideoProcessor(
        size={"shortest_edge": 4096, "longest_edge": 1_048_576},
        min_frames=4,
        max_frames=32,
        **PATCHES,
        **GREY,
    )
    names = {
        "image_processor_type": "Qwen2VLImageProcessor",
        "feature_extractor_type": "WhisperFeatureExtractor",
    }
    first = {**sound.to_dict(), **image.to_dict(), **names, "processor_class": CLASS}
    second = {**video.to_dict(), "processor_class": CLASS}
    for name, values in (("preprocessor_config", first), ("video_preprocessor_config", second)):
        (folder / f"{name}.json").write_text(json.dumps(values, indent=1), encoding="utf-8")
    change_json(folder / "tokenizer_config.json", {"processor_class": CLASS})


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    words = write_tokenizer(target, sound=True)
    write_config(target, words, write_weights(target, words))
    write_processors(target)
    write_generation(target, words)
