"""Builds and connects everything: settings, gateway, reader, and the process that listens."""

from dabom.app.config.load import Reading, load_settings, read_settings
from dabom.app.server import Server, build, serve
from dabom.app.settings import Settings

__all__ = ["Reading", "Server", "Settings", "build", "load_settings", "read_settings", "serve"]
