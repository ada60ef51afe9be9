"""``splatanim view``: from a name to something that moves, and from that to the browser or the window."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pipelines.view_config import ViewConfig
from splatanim.errors import InputError, require
from splatanim.render.camera import Camera
from splatanim.threads import one_blas_thread
from viewers.moving import Moving


def view(config: ViewConfig) -> str:
    """Show the scene until Ctrl-C (or until the window is closed); returns what to say at the end.

    Raises InputError for anything wrong with the options or the scene, before anything is shown.
    """
    _check(config)
    if config.window:
        from viewers.window import show_window

        moving = open_moving(config)
        try:
            return show_window(moving)
        finally:
            moving.close()
    return _serve(config)


def open_moving(config: ViewConfig) -> Moving:
    """The engine or the player that suits the scene: see :class:`pipelines.view_config.ViewConfig`."""
    from rigpapr.asset import is_asset
    from viewers.playback import FolderPlayback, SequencePlayback, is_frames_folder

    scene, animated = config.scene, config.animate_config()
    if scene is not None and is_asset(scene):
        from viewers.papr import open_papr

        return open_papr(scene, config.up, config.object_size)
    if scene is not None and is_frames_folder(scene):
        return FolderPlayback(scene, config.rate, config.up, config.object_size)
    if scene is not None and scene.suffix.lower() == ".npz":
        return SequencePlayback(scene)
    if not animated.is_scene and animated.is_rigged:
        from viewers.rigged import RigSimulation

        return RigSimulation.open(scene, animated)
    from viewers.simulation import Simulation

    return Simulation.open(_named(scene), animated)


def _named(scene: Path | None) -> Path | str | None:
    """The name of a bundled sample as such, unless a file is called so."""
    from splatanim.samples import sample_names

    if scene is not None and not scene.exists() and str(scene) in sample_names():
        return str(scene)
    return scene


def _check(config: ViewConfig) -> None:
    """What can be wrong with the options is said before the work, not after it."""
    if not 0.1 <= config.rate <= 240:
        raise InputError(f"--rate {config.rate:g}: between 0.1 and 240 pictures a second can be sent.")
    if not config.object_size > 0:
        raise InputError(f"--object-size {config.object_size:g} must be positive (metres).")
    for path in config.drop:
        if not path.exists():
            raise InputError(f"--drop {path}: there is no such file.")
    if config.output.exists() and not config.output.is_dir():
        raise InputError(f"--output {config.output}: is a file. Give the name of a folder.")
    if config.window:
        require("polyscope", extra="viewer")
    else:
        require("viser", extra="viewer")


def _cameras(config: ViewConfig) -> list[Camera]:
    if config.cameras is None:
        return []
    from splatanim.render.camera_io import read_cameras

    return read_cameras(config.cameras).cameras


def _serve(config: ViewConfig) -> str:
    from viewers.app import Viewer, ViewOptions
    from viewers.server import address_lines, check_address

    check_address(config.host, config.port)
    options = ViewOptions(
        config.host, config.port, config.rate, config.output, _cameras(config), config.drop, config.backend
    )
    with one_blas_thread():  # where cores are shared, threads that wait for small matrices cost more than they help
        moving: Any = open_moving(config)
    recording = config.record
    if recording and not hasattr(moving, "start_recording"):
        moving.close()
        raise InputError("--record: what is played back is recorded already. Give a capture, a scene.toml or a rig.")
    try:
        viewer = Viewer(moving, options)
    except BaseException:
        moving.close()
        raise
    written: list[str] = []
    try:
        if recording:
            viewer.record()
        if not config.paused:
            moving.play()
        print(f"{address_lines(config.host, viewer.port)}\nCtrl-C ends it.", file=sys.stderr, flush=True)
        viewer.wait()
    except KeyboardInterrupt:
        if recording:
            written = viewer.write_recording()
    finally:
        viewer.close()
    return "\n".join(written)
