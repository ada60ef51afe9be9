from __future__ import annotations

import os
import re
import stat
import struct
import subprocess
import sys
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image

from splatanim.errors import InputError, OutputError
from splatanim.render.video import VideoWriter, to_bytes, write_png


def frames(count: int, width: int, height: int) -> list[np.ndarray]:
    """A smooth picture whose brightness grows from frame to frame."""
    y, x = np.mgrid[:height, :width] / max(width, height)
    return [np.stack([x, y, np.full_like(x, k / count)], axis=-1).astype(np.float32) for k in range(count)]


def write_video(path: Path, pictures: list[np.ndarray], fps: float = 25.0) -> VideoWriter:
    with VideoWriter(path, fps=fps) as video:
        for picture in pictures:
            video.write(picture)
    return video


def probe(path: Path) -> str:
    program = imageio_ffmpeg.get_ffmpeg_exe()
    return subprocess.run([program, "-i", str(path), "-f", "null", "-"], capture_output=True, text=True).stderr


def decode(path: Path, width: int, height: int) -> np.ndarray:
    program = imageio_ffmpeg.get_ffmpeg_exe()
    command = [program, "-v", "error", "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    raw = subprocess.run(command, capture_output=True, check=True).stdout
    return np.frombuffer(raw, np.uint8).reshape(-1, height, width, 3)


def atoms(path: Path) -> list[str]:
    """The names of the top-level boxes of an MP4 file, in order."""
    data, names, position = path.read_bytes(), [], 0
    while position < len(data):
        size, name = struct.unpack(">I4s", data[position : position + 8])
        names.append(name.decode())
        position += size if size > 1 else struct.unpack(">Q", data[position + 8 : position + 16])[0]
    return names


def fake_ffmpeg(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "ffmpeg"
    program.write_text(f"#!{sys.executable}\nimport os, sys, time\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(program))


def test_the_file_is_what_it_should_be(tmp_path: Path) -> None:
    path = tmp_path / "out.mp4"
    pictures = frames(12, 64, 48)
    assert write_video(path, pictures).note == ""
    text = probe(path)
    assert re.search(r"Video: h264 .*yuv420p\(tv, bt709.*64x48", text), text
    assert "25 fps" in text and re.findall(r"frame=\s*(\d+)", text)[-1] == "12"
    names = atoms(path)
    assert names.index("moov") < names.index("mdat") and "moof" not in names
    error = decode(path, 64, 48).astype(float) - np.stack([to_bytes(p) for p in pictures])
    assert np.abs(error).mean() < 4  # colours and order are right, within 4:2:0 and crf 18
    assert [p.name for p in tmp_path.iterdir()] == ["out.mp4"]


@pytest.mark.parametrize("colour", [(0, 255, 0), (255, 0, 0), (20, 40, 250), (255, 255, 255), (0, 0, 0)])
def test_colours_survive(tmp_path: Path, colour: tuple[int, int, int]) -> None:
    """The matrix that converts and the one that the file names are the same."""
    path = tmp_path / "colour.mp4"
    write_video(path, [np.broadcast_to(np.array(colour, np.uint8), (16, 16, 3))] * 2)
    assert np.abs(decode(path, 16, 16).astype(int) - colour).max() <= 4


@pytest.mark.parametrize("size", [(33, 48), (64, 25), (33, 25), (1, 1)])
def test_odd_sizes_repeat_the_last_row_or_column(tmp_path: Path, size: tuple[int, int]) -> None:
    width, height = size
    video = write_video(tmp_path / "odd.mp4", frames(3, width, height))
    even = (width + width % 2, height + height % 2)
    assert f"{width}x{height} was padded to {even[0]}x{even[1]}" in video.note
    assert f"{even[0]}x{even[1]}" in probe(tmp_path / "odd.mp4")
    assert decode(tmp_path / "odd.mp4", *even).shape[0] == 3


def test_bytes_and_floats_are_the_same_and_odd_values_are_clipped() -> None:
    values = np.array([-1.0, 0.0, 0.5, 1.0, 7.0, np.nan, np.inf], np.float32)
    assert to_bytes(values).tolist() == [0, 0, 128, 255, 255, 0, 255]
    assert to_bytes(np.array([7], np.uint8)).tolist() == [7]


def test_an_older_file_is_replaced_only_on_success(tmp_path: Path) -> None:
    path = tmp_path / "out.mp4"
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), VideoWriter(path) as video:
        video.write(frames(1, 8, 8)[0])
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old" and [p.name for p in tmp_path.iterdir()] == ["out.mp4"]
    write_video(path, frames(2, 8, 8))
    assert atoms(path)[0] == "ftyp"


@pytest.mark.parametrize("when", ["at once", "after reading"])
def test_a_failing_ffmpeg_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    drain = "" if when == "at once" else "sys.stdin.buffer.read(); "
    fake_ffmpeg(tmp_path, f"{drain}sys.stderr.write('Unknown encoder libx264\\n'); sys.exit(69)", monkeypatch)
    with pytest.raises(OutputError, match=r"(?s)out.mp4: ffmpeg failed with exit code 69.*Unknown encoder libx264"):
        write_video(tmp_path / "out.mp4", frames(8, 400, 400))
    assert [p.name for p in tmp_path.iterdir()] == ["ffmpeg"]


def test_a_talkative_ffmpeg_neither_blocks_nor_fills_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = "sys.stderr.write('noise ' * 500000); sys.stderr.flush(); sys.stdin.buffer.read()\n"
    script += "sys.stderr.write('\\nthe end'); sys.exit(3)"
    fake_ffmpeg(tmp_path, script, monkeypatch)
    with pytest.raises(OutputError, match="the end") as caught:
        write_video(tmp_path / "out.mp4", frames(4, 200, 200))
    assert len(str(caught.value)) < 6000


def test_an_interrupt_stops_a_hanging_ffmpeg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pid_file = tmp_path / "pid"
    fake_ffmpeg(tmp_path, f"open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(60)", monkeypatch)
    with pytest.raises(KeyboardInterrupt), VideoWriter(tmp_path / "out.mp4") as video:
        video.write(frames(1, 8, 8)[0])
        while not (pid_file.exists() and pid_file.read_text()):
            pass
        raise KeyboardInterrupt
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ffmpeg", "pid"]


def test_an_interrupt_while_ffmpeg_finishes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pid_file = tmp_path / "pid"
    fake_ffmpeg(tmp_path, f"open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(60)", monkeypatch)

    def interrupted(self: subprocess.Popen[bytes]) -> int:
        while not (pid_file.exists() and pid_file.read_text()):
            pass
        monkeypatch.undo()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), VideoWriter(tmp_path / "out.mp4") as video:
        video.write(frames(1, 8, 8)[0])
        monkeypatch.setattr(subprocess.Popen, "wait", interrupted)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ffmpeg", "pid"]


def test_an_ffmpeg_that_cannot_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ffmpeg").write_text("no program")
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(tmp_path / "ffmpeg"))
    with pytest.raises(OutputError, match=r"out.mp4: ffmpeg \(.*\) cannot be started"):
        write_video(tmp_path / "out.mp4", frames(1, 8, 8))
    assert [p.name for p in tmp_path.iterdir()] == ["ffmpeg"]


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"only .mp4, .webm, .mov can be written. Give a name such as .*out.mp4"):
        VideoWriter(tmp_path / "out.avi")
    with pytest.raises(InputError, match="frames per second"):
        VideoWriter(tmp_path / "out.mp4", fps=float("nan"))
    with pytest.raises(InputError, match="no frame was given"):
        write_video(tmp_path / "out.mp4", [])
    with pytest.raises(InputError, match=r"frame 1 has shape \(8, 8, 3\), the first had \(16, 16, 3\)"):
        write_video(tmp_path / "out.mp4", [frames(1, 16, 16)[0], frames(1, 8, 8)[0]])
    with pytest.raises(InputError, match=r"shape \(8, 8\)"):
        write_video(tmp_path / "out.mp4", [np.zeros((8, 8))])
    with pytest.raises(OutputError, match="does not exist"):
        write_video(tmp_path / "no" / "out.mp4", frames(1, 8, 8))
    assert not list(tmp_path.iterdir())


def test_png(tmp_path: Path) -> None:
    picture = frames(2, 9, 7)[1]
    write_png(tmp_path / "a.png", picture)
    assert np.array_equal(np.asarray(Image.open(tmp_path / "a.png")), to_bytes(picture))
    alpha = np.full((7, 9), 0.5, np.float32)
    write_png(tmp_path / "b.png", picture * alpha[..., None], alpha)
    rgba = np.asarray(Image.open(tmp_path / "b.png")).astype(int)
    assert rgba.shape == (7, 9, 4) and (rgba[..., 3] == 128).all()
    assert np.abs(rgba[..., :3] - to_bytes(picture)).max() <= 2
    with pytest.raises(InputError, match=r"written as .png"):
        write_png(tmp_path / "a.jpg", picture)
    with pytest.raises(OutputError, match="does not exist"):
        write_png(tmp_path / "no" / "a.png", picture)
