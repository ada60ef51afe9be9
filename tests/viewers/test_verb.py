"""``splatanim view`` from the command line: what it opens, what it refuses, and how it ends."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.cli import main
from pipelines.view_config import ViewConfig
from splatanim.errors import InputError
from splatanim.formats import write_ply
from tests.helpers import random_splats
from viewers.playback import FolderPlayback
from viewers.verb import open_moving, view

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def frames(tmp_path) -> Path:
    folder = tmp_path / "frames"
    folder.mkdir()
    for k in range(2):
        write_ply(folder / f"frame_{k:04d}.ply", random_splats(30, degree=0, seed=k))
    return folder


def test_the_animate_options_are_passed_on() -> None:
    config = ViewConfig(Path("a.ply"), material="rubber", young=5.0, handles=7, rate=24.0, up="+z")
    animated = config.animate_config()
    assert (animated.scene, animated.material, animated.young) == (Path("a.ply"), "rubber", 5.0)
    assert (animated.handles, animated.fps, animated.up) == (7, 24.0, "+z")


def test_a_folder_of_frames_is_played(frames) -> None:
    moving = open_moving(ViewConfig(frames, rate=12.0))
    assert isinstance(moving, FolderPlayback) and moving.fps == 12.0
    moving.close()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"rate": 0.0}, "--rate 0: between 0.1 and 240"),
        ({"object_size": -1.0}, "--object-size -1 must be positive"),
        ({"drop": (Path("nowhere.ply"),)}, "--drop nowhere.ply: there is no such file"),
        ({"output": Path(__file__)}, "is a file. Give the name of a folder"),
        ({"port": 99999}, "between 0 and 65535"),
        ({"record": True, "port": 0}, "--record: what is played back is recorded already"),
        ({"cameras": Path("nowhere.json"), "port": 0}, "nowhere.json: there is no such file"),
    ],
)
def test_options_that_cannot_be(frames, changes, text) -> None:
    pytest.importorskip("viser", reason="viser is not installed (pip install splatanim[viewer])")
    with pytest.raises(InputError, match=text):
        view(ViewConfig(frames, **changes))


@pytest.mark.parametrize(("module", "window"), [("viser", False), ("polyscope", True)])
def test_a_missing_package_names_the_extra(frames, monkeypatch, module, window) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=rf'{module} is needed.*pip install "splatanim\[viewer\]"'):
        view(ViewConfig(frames, window=window))


def test_a_port_in_use_ends_with_a_message_and_code_2(frames, capsys) -> None:
    pytest.importorskip("viser", reason="viser is not installed (pip install splatanim[viewer])")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["view", str(frames), "--port", str(port)]) == 2
    assert f"--port {port}: is in use on 127.0.0.1" in capsys.readouterr().err


def test_ctrl_c_ends_it_cleanly(frames) -> None:
    pytest.importorskip("viser", reason="viser is not installed (pip install splatanim[viewer])")
    command = [sys.executable, "-m", "pipelines.cli", "view", str(frames), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert said.startswith("viewing at http://127.0.0.1:"), said + process.stderr.read()
        assert "this machine alone" in said
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0
    assert out == "" and "Traceback" not in err
