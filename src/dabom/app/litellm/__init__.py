"""A LiteLLM file turned into `dabom.yaml`, with a list of what could not be carried over and why."""

from dabom.app.litellm.convert import Conversion, convert

__all__ = ["Conversion", "convert"]
