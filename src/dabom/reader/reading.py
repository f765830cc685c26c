"""From a job to its answer: look at each media part, then write sentences or a document."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dabom.errors import InvalidMedia
from dabom.media import DataUri, Sampling, read_data_uri, read_picture, read_sound
from dabom.media.uris import read_base64
from dabom.reader import tokens
from dabom.reader.documents import write_document
from dabom.reader.findings import Look, Reading
from dabom.reader.light import measure_light
from dabom.reader.listening import Listener
from dabom.reader.text import TextReader
from dabom.reader.watching import watch, watch_pictures
from dabom.reader.words import describe

if TYPE_CHECKING:
    from pathlib import Path

    from dabom.reader.findings import Finding, Job, MediaPart

# A video whose declared type is a picture's is a list of pictures: the one case in which the claim decides.
_STILLS = frozenset({"video/jpeg", "video/png", "video/webp"})


class Reader:
    """Everything that looks, in one thread."""

    def __init__(self, whisper_model: Path | None = None) -> None:
        self._text = TextReader()
        self._listener = Listener(whisper_model)

    def close(self) -> None:
        """Free what the libraries hold."""
        self._text.close()

    def read(self, job: Job) -> Reading:
        """Answer one job. Raises ClientError for bad media or a schema that nothing can satisfy."""
        findings = [self._look(part, job) for part in job.parts]
        media_tokens = sum(tokens.count_media(finding) for finding in findings)
        if job.schema or job.json_mode:
            return Reading(write_document(job.schema or None, findings, job.language), media_tokens)
        return Reading(describe(findings, job.language), media_tokens)

    def _look(self, part: MediaPart, job: Job) -> Finding:
        found = read_data_uri(part.source) if part.is_uri else DataUri("", (read_base64(part.source),))
        if part.kind == "picture":
            return self._look_at_picture(found.parts[0])
        if part.kind == "video":
            return self._watch(found, job)
        sound = read_sound(found.parts[0])
        if sound is None:
            raise InvalidMedia("file holds no sound track")
        return self._listener.listen(sound)

    def _watch(self, found: DataUri, job: Job) -> Finding:
        if found.declared not in _STILLS:
            listener = self._listener if job.sound_asked else None
            return watch(found.parts[0], Sampling(job.fps, job.num_frames), self._text, listener)
        fps = len(found.parts) / job.duration_s if job.duration_s else job.fps
        return watch_pictures(found.parts, fps, self._text, sound_asked=job.sound_asked)

    def _look_at_picture(self, content: bytes) -> Look:
        picture = read_picture(content)
        light = measure_light(picture.image)
        lines = [] if light.black or light.blank else self._text.read_picture(picture.image)
        return Look(picture.width, picture.height, picture.format, picture.frames, light, lines)
