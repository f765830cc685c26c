"""Cutting of clips, compared with the ffmpeg program."""
