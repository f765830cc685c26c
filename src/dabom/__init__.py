"""Dabom (다봄): one OpenAI-compatible gateway for multimodal models on your own hardware."""

__version__ = "0.1.0"
