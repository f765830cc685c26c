"""Broadcast clips: cut from a recording, checked by controls, asked about one by one."""

from __future__ import annotations

from dabom.clips.manifest import MANIFEST, Clip, add_line, read_manifest, write_manifest

__all__ = ["MANIFEST", "Clip", "add_line", "read_manifest", "write_manifest"]
