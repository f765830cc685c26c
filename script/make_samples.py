"""Make `samples/`: a short synthetic Korean broadcast whose captions, cuts and speech are known.

    python script/make_samples.py [FOLDER]

Needs the Debian packages `fonts-nanum` (pictures) and `espeak-ng` (speech); nobody needs them to use the
files, which are in the repository. The same versions of both, of PyAV and of Pillow give the same bytes.

Five scenes of six seconds: news, weather, baseball, nature, markets. `broadcast.mp4` is the whole, `clips/`
the six-second cuts named `{seq:04d}_{start:04d}-{end:04d}.mp4`, `blackout/` the first clip with a black
picture and its sound packets copied as they are, `caption.png` a still and `speech.wav` its sound.
`truth.json` says what is shown and said, in seconds.
"""

from __future__ import annotations

import io
import json
import math
import subprocess
import sys
import wave
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import av
import numpy as np
from PIL import Image, ImageDraw, ImageFont

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

WIDTH, HEIGHT, FPS, RATE = 640, 360, 25, 16_000
CLIP_S = 6
FONTS = Path("/usr/share/fonts/truetype/nanum")
LOGO = "DBN 24"


@dataclass(frozen=True)
class Scene:
    """One shot: what is drawn, and the caption at the bottom."""

    start_s: float
    end_s: float
    kind: str
    caption: str
    second: str = ""


@dataclass(frozen=True)
class Speech:
    """One spoken sentence and where it begins."""

    start_s: float
    text: str
    voice: str = "ko"
    words_a_minute: int = 178


SCENES = (
    Scene(0.0, 3.2, "studio", "서울 첫눈, 출근길 빙판 주의"),
    Scene(3.2, 6.0, "snow", "오늘 아침 기온 영하 5도"),
    Scene(6.0, 9.0, "map", "내일 전국 대체로 맑음"),
    Scene(9.0, 12.0, "studio", "날씨 전해 드렸습니다"),
    Scene(12.0, 15.4, "field", "한국 3 : 2 일본", "9회말 2사 만루"),
    Scene(15.4, 18.0, "stands", "한국시리즈 7차전"),
    Scene(18.0, 24.0, "sea", "제주 바다의 겨울", "JEJU 2026"),
    Scene(24.0, 28.0, "chart", "코스피 2,745.82 상승 마감", "KOSPI +1.2%"),
    Scene(28.0, 30.0, "card", "시청해 주셔서 감사합니다"),
)
SPEECH = (
    Speech(0.3, "서울에 첫눈이 내렸습니다. 출근길 빙판을 조심하시기 바랍니다."),
    Speech(6.4, "내일은 전국이 대체로 맑겠습니다.", "ko+f2"),
    Speech(9.4, "날씨 전해 드렸습니다.", "ko+f2"),
    Speech(24.4, "오늘 코스피는 상승 마감했습니다."),
)
# Kind of background sound, from, to. What is in no row is digital silence apart from speech.
SOUNDS = (("crowd", 12.0, 18.0), ("music", 18.0, 24.0))
TOTAL_S = 30


def font(size: int, *, face: str = "NanumGothicBold") -> ImageFont.FreeTypeFont:
    """A Korean font of Debian's fonts-nanum."""
    return ImageFont.truetype(str(FONTS / f"{face}.ttf"), size)


def slope(top: tuple[int, int, int], bottom: tuple[int, int, int]) -> Image.Image:
    """A vertical colour gradient of the size of the picture."""
    part = np.linspace(0, 1, HEIGHT)[:, None, None]
    rows = np.asarray(top) * (1 - part) + np.asarray(bottom) * part
    return Image.fromarray(np.broadcast_to(rows, (HEIGHT, WIDTH, 3)).astype(np.uint8))


def draw_studio(at: float) -> Image.Image:
    """An anchor, as a shape, before a wall of light."""
    image = slope((16, 36, 92), (40, 84, 160))
    pen = ImageDraw.Draw(image)
    for column in range(6):
        pen.rectangle((40 + column * 100, 40, 110 + column * 100, 190), fill=(28, 60 + 8 * column, 130))
    sway = 3 * math.sin(at * 2.1)
    pen.ellipse((280 + sway, 90, 360 + sway, 190), fill=(222, 184, 152))
    pen.pieslice((276 + sway, 80, 364 + sway, 170), 180, 360, fill=(30, 24, 20))
    pen.rounded_rectangle((230 + sway / 2, 190, 410 + sway / 2, 360), 40, fill=(44, 44, 52))
    return image


def draw_snow(at: float) -> Image.Image:
    """A grey street with falling snow."""
    image = slope((150, 158, 170), (228, 230, 234))
    pen = ImageDraw.Draw(image)
    for block in range(7):
        pen.rectangle((block * 95, 120 - 17 * (block % 3), block * 95 + 70, 240), fill=(96, 100, 110))
    flakes = np.random.default_rng(7).uniform(size=(60, 2))
    for x, y in flakes:
        fall = (y * HEIGHT + at * 70) % HEIGHT
        pen.ellipse((x * WIDTH, fall, x * WIDTH + 5, fall + 5), fill="white")
    return image


def draw_map(at: float) -> Image.Image:
    """Land in the sea, with a sun that moves."""
    image = slope((60, 140, 200), (40, 110, 180))
    pen = ImageDraw.Draw(image)
    pen.polygon(
        [(270, 40), (360, 60), (390, 150), (370, 240), (300, 255), (260, 180), (280, 110)], fill=(90, 170, 90)
    )
    across = 420 + 20 * at % 120
    pen.ellipse((across, 60, across + 60, 120), fill=(255, 200, 40))
    return image


def draw_field(at: float) -> Image.Image:
    """A ball field; the ball flies."""
    image = slope((46, 120, 60), (30, 96, 44))
    pen = ImageDraw.Draw(image)
    pen.polygon([(320, 110), (450, 190), (320, 270), (190, 190)], fill=(170, 120, 70))
    x, y = 120 + 130 * (at % 3), 200 - 90 * math.sin((at % 3) * 1.05)
    pen.ellipse((x, y, x + 12, y + 12), fill="white")
    return image


def draw_stands(at: float) -> Image.Image:
    """People in rows, in the colours of a team, who jump."""
    image = slope((80, 20, 24), (120, 30, 34))
    pen = ImageDraw.Draw(image)
    for row in range(5):
        for seat in range(16):
            jump = 5 * math.sin(at * 7 + seat * 1.7 + row)
            x, y = 20 + seat * 39, 50 + row * 44 + jump
            pen.ellipse((x, y, x + 22, y + 26), fill=(200, 60 + 8 * row, 50))
    return image


def draw_sea(at: float) -> Image.Image:
    """Waves under an evening sky."""
    image = slope((250, 180, 120), (70, 90, 140))
    pen = ImageDraw.Draw(image)
    for layer in range(4):
        line = [
            (x, 190 + layer * 30 + 8 * math.sin(x / 50 + at * 0.9 + layer)) for x in range(0, WIDTH + 20, 20)
        ]
        pen.polygon([*line, (WIDTH, HEIGHT), (0, HEIGHT)], fill=(30, 70 + 12 * layer, 120 + 12 * layer))
    return image


def draw_chart(at: float) -> Image.Image:
    """A rising line on a dark ground."""
    image = slope((18, 20, 30), (28, 32, 46))
    pen = ImageDraw.Draw(image)
    points = [(60 + 40 * step, 230 - 11 * step - 16 * math.sin(step * 1.3)) for step in range(13)]
    shown = max(2, min(len(points), int(3 + at * 3)))
    pen.line(points[:shown], fill=(230, 60, 60), width=4)
    return image


def draw_card(_at: float) -> Image.Image:
    """The end card."""
    return slope((236, 236, 240), (236, 236, 240))


DRAWERS = {
    "studio": draw_studio,
    "snow": draw_snow,
    "map": draw_map,
    "field": draw_field,
    "stands": draw_stands,
    "sea": draw_sea,
    "chart": draw_chart,
    "card": draw_card,
}


def draw(at: float) -> Image.Image:
    """The whole picture at one time: scene, logo, second text, caption."""
    scene = next(scene for scene in SCENES if scene.start_s <= at < scene.end_s)
    image = DRAWERS[scene.kind](at - scene.start_s)
    pen = ImageDraw.Draw(image, "RGBA")
    dark = scene.kind == "card"
    pen.text(
        (628, 16),
        LOGO,
        font=font(20, face="NanumSquareB"),
        fill=(40, 40, 48) if dark else "white",
        anchor="ra",
    )
    if scene.second:
        box = pen.textbbox((24, 22), scene.second, font=font(22))
        pen.rectangle((box[0] - 8, box[1] - 6, box[2] + 8, box[3] + 6), fill=(0, 0, 0, 190))
        pen.text((24, 22), scene.second, font=font(22), fill=(255, 224, 90))
    pen.rectangle((0, 288, WIDTH, 340), fill=(10, 24, 70, 225))
    pen.rectangle((0, 288, 10, 340), fill=(220, 40, 50))
    pen.text((28, 314), scene.caption, font=font(30), fill="white", anchor="lm")
    return image


def speak(speech: Speech) -> NDArray[np.float32]:
    """One sentence from espeak-ng at 16 kHz, without the silence around it."""
    command = ["espeak-ng", "-v", speech.voice, "-s", str(speech.words_a_minute), "--stdout", speech.text]
    found = subprocess.run(command, capture_output=True, check=True).stdout
    with wave.open(io.BytesIO(found)) as source:
        rate = source.getframerate()
    raw = np.frombuffer(found[44:], np.int16).astype(np.float32) / 32768
    count = len(raw) * RATE // rate
    samples = np.interp(np.arange(count) * rate / RATE, np.arange(len(raw)), raw).astype(np.float32)
    loud = np.flatnonzero(np.abs(samples) > 0.01)
    spoken: NDArray[np.float32] = samples[loud[0] : loud[-1] + 1] * np.float32(0.8)
    return spoken


def make_sound() -> tuple[NDArray[np.float32], list[dict[str, Any]]]:
    """The whole sound, and where which sentence is spoken."""
    track = np.zeros(TOTAL_S * RATE, np.float32)
    rng = np.random.default_rng(1)
    for kind, start, end in SOUNDS:
        count = int((end - start) * RATE)
        clock = np.arange(count) / RATE
        if kind == "crowd":
            noise = np.convolve(rng.normal(size=count), np.ones(24) / 24, "same")
            sound = 0.25 * noise * (0.8 + 0.2 * np.sin(clock * 1.3))
        else:
            notes = np.asarray([261.6, 329.6, 392.0, 523.3])[(clock * 2).astype(int) % 4]
            sound = 0.18 * np.sin(2 * np.pi * notes * clock) * np.exp(-2.2 * (clock * 2 % 1))
        track[int(start * RATE) : int(start * RATE) + count] += sound.astype(np.float32)
    spoken = []
    for speech in SPEECH:
        voice = speak(speech)
        start = int(speech.start_s * RATE)
        track[start : start + len(voice)] += voice
        end_s = speech.start_s + len(voice) / RATE
        spoken.append({"start_s": speech.start_s, "end_s": round(end_s, 2), "text": speech.text})
    return np.clip(track, -1, 1), spoken


def encode(path: Path, pictures: Iterable[Image.Image], sound: NDArray[np.float32], crf: int = 27) -> None:
    """H.264 and AAC mono in an mp4 with its index in front."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w", options={"movflags": "+faststart", "fflags": "+bitexact"}) as out:
        video = out.add_stream("libx264", rate=FPS)
        video.width, video.height, video.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        video.options = {"crf": str(crf), "preset": "slow", "threads": "1", "flags": "+bitexact"}
        audio = out.add_stream("aac", rate=RATE, layout="mono")
        audio.bit_rate = 48_000
        for index, picture in enumerate(pictures):
            frame = av.VideoFrame.from_ndarray(np.asarray(picture), format="rgb24")
            frame.pts, frame.time_base = index, Fraction(1, FPS)
            out.mux(video.encode(frame))
        out.mux(video.encode(None))
        for at in range(0, len(sound), 1024):
            chunk = av.AudioFrame.from_ndarray(sound[None, at : at + 1024], format="fltp", layout="mono")
            chunk.sample_rate, chunk.pts, chunk.time_base = RATE, at, Fraction(1, RATE)
            out.mux(audio.encode(chunk))
        out.mux(audio.encode(None))


def black_out(source: Path, path: Path) -> None:
    """The same clip with a black picture; the sound packets are copied, not coded again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    black = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    with av.open(str(source)) as old, av.open(str(path), "w", options={"movflags": "+faststart"}) as out:
        video = out.add_stream("libx264", rate=FPS)
        video.width, video.height, video.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        video.options = {"crf": "30", "threads": "1"}
        sound = old.streams.audio[0]
        copy = out.add_stream_from_template(sound)
        for index in range(CLIP_S * FPS):
            frame = av.VideoFrame.from_ndarray(black, format="rgb24")
            frame.pts, frame.time_base = index, Fraction(1, FPS)
            out.mux(video.encode(frame))
        out.mux(video.encode(None))
        for packet in old.demux(sound):
            if packet.dts is not None:
                packet.stream = copy
                out.mux(packet)


def truth_of(start: float, end: float, spoken: list[dict[str, Any]]) -> dict[str, Any]:
    """What is seen and heard from `start` to `end`, in seconds from `start`."""

    def inside(first: float, last: float) -> dict[str, float]:
        return {"start_s": round(max(first, start) - start, 2), "end_s": round(min(last, end) - start, 2)}

    scenes = [scene for scene in SCENES if scene.start_s < end and scene.end_s > start]
    captions = [
        {"text": scene.caption, "place": "lower third", **inside(scene.start_s, scene.end_s)}
        for scene in scenes
    ]
    captions += [
        {"text": scene.second, "place": "top left", **inside(scene.start_s, scene.end_s)}
        for scene in scenes
        if scene.second
    ]
    return {
        "duration_s": end - start,
        "cuts_s": [round(scene.start_s - start, 2) for scene in scenes if scene.start_s > start],
        "captions": captions,
        "logo": LOGO,
        "speech": [
            {"text": row["text"], **inside(row["start_s"], row["end_s"])}
            for row in spoken
            if row["start_s"] < end and row["end_s"] > start
        ],
        "other_sound": [
            {"kind": kind, **inside(first, last)}
            for kind, first, last in SOUNDS
            if first < end and last > start
        ],
    }


def pictures(start: float, end: float) -> Iterator[Image.Image]:
    """The pictures from `start` to `end`, in order."""
    for index in range(round(start * FPS), round(end * FPS)):
        yield draw(index / FPS)


def main() -> None:
    """Make every file."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent / "samples"
    sound, spoken = make_sound()
    encode(folder / "broadcast.mp4", pictures(0, TOTAL_S), sound)
    truth: dict[str, Any] = {
        "picture": {"width": WIDTH, "height": HEIGHT, "fps": FPS},
        "broadcast": {"file": "broadcast.mp4", **truth_of(0, TOTAL_S, spoken)},
        "clips": [],
    }
    for number, start in enumerate(range(0, TOTAL_S, CLIP_S), 1):
        name = f"clips/news/broadcast/{number:04d}_{start:04d}-{start + CLIP_S:04d}.mp4"
        end = start + CLIP_S
        encode(folder / name, pictures(start, end), sound[start * RATE : end * RATE])
        truth["clips"].append({"file": name, **truth_of(start, end, spoken)})
    first = truth["clips"][0]["file"]
    black = first.replace("clips/", "blackout/", 1)
    black_out(folder / first, folder / black)
    truth["blackout"] = {"file": black, "speech": truth["clips"][0]["speech"]}
    draw(1.0).save(folder / "caption.png", optimize=True)
    truth["still"] = {"file": "caption.png", "captions": [SCENES[0].caption], "logo": LOGO}
    with wave.open(str(folder / "speech.wav"), "wb") as out:
        out.setparams((1, 2, RATE, 0, "NONE", "not compressed"))
        out.writeframes((sound[: CLIP_S * RATE] * 32767).astype("<i2").tobytes())
    truth["sound"] = {"file": "speech.wav", "duration_s": CLIP_S, "speech": truth["clips"][0]["speech"]}
    (folder / "truth.json").write_text(
        json.dumps(truth, ensure_ascii=False, indent=1) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
