"""Builds and connects everything: settings, gateway, reader, and the process that listens."""

from dabom.app.server import Server, build, serve
from dabom.app.settings import Settings, load_settings

__all__ = ["Server", "Settings", "build", "load_settings", "serve"]
