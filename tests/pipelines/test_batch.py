"""Whole folders of objects: what is found, done, skipped, tried again and told, and that nothing stops the rest."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from pipelines.batch import BatchConfig, batch, jobs_of
from pipelines.batch_jobs import FAILED, Job, do_job, finished, objects_in, read_record
from pipelines.batch_local import run_local
from pipelines.batch_ray import run_ray
from pipelines.cli import main
from splatanim.errors import InputError
from splatanim.formats import write_splats
from tests.helpers import random_splats
from tests.pipelines import batch_work

ROOT = Path(__file__).parent.parent.parent
SHORT = {"seconds": 0.2, "fps": 15.0, "size": "64x48", "field": "gaussians", "handles": 4}


def ball(path: Path, seed: int = 0) -> Path:
    """600 splats on a sphere."""
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=(600, 3))
    means = 0.5 * direction / np.linalg.norm(direction, axis=1, keepdims=True)
    splats = random_splats(600, degree=0, seed=seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_splats(path, splats.replace(means=means.astype(np.float32), raw_opacities=np.full(600, 2.0, np.float32)))
    return path


def jobs(folder: Path, count: int = 6) -> list[Job]:
    """Jobs for :mod:`.batch_work`, whose sources are files of a byte."""
    (folder / "out").mkdir(parents=True)
    for k in range(count):
        (folder / f"object_{k}.ply").write_bytes(b"x")
    return [
        Job(f"object_{k}", str(folder / f"object_{k}.ply"), str(folder / "out"), ".mp4", {"seconds": 1.0})
        for k in range(count)
    ]


def test_names_are_paths_without_suffix_where_they_differ(tmp_path: Path) -> None:
    for name in ("b/x.ply", "a/x.spz", "a/y.ply", "a/y.splat", "c.compressed.ply", ".hidden/z.ply", "a/notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for name in ("sog.v2/meta.json", "out/seen.ply"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    found = [name for name, _ in objects_in(tmp_path, tmp_path / "out")]
    assert found == ["a/x", "a/y.ply", "a/y.splat", "b/x", "c.compressed", "sog.v2"]
    assert [name for name, _ in objects_in(tmp_path, tmp_path / "out", limit=2)] == found[:2]


def test_a_batch_is_whole_and_does_again_only_what_changed(tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    first = ball(folder / "chairs" / "a.ply")
    ball(folder / "chairs" / "deep" / "b.spz", seed=1)
    (folder / "broken.ply").write_text("not a ply")
    config = BatchConfig(folder, out, workers=1, export=("npz",), **SHORT)
    said = batch(config)
    assert "2 of 3 objects animated (0 of them before)" in said and "failed    1" in said
    films = [out / "chairs" / "a.mp4", out / "chairs" / "deep" / "b.mp4"]
    assert all(film.stat().st_size > 500 and film.with_suffix(".npz").is_file() for film in films)
    assert "does not begin with 'ply'" in (out / "failures.txt").read_text()
    rows = {row["name"]: row for row in csv.DictReader(open(out / "table.csv", newline=""))}
    lines = {row["name"]: row for row in map(json.loads, (out / "table.jsonl").read_text().splitlines())}
    assert set(rows) == set(lines) == {"broken", "chairs/a", "chairs/deep/b"}
    assert (
        rows["chairs/a"]["status"] == "done"
        and rows["chairs/a"]["splats"] == "600"
        and rows["chairs/a"]["frames"] == "3"
    )
    assert lines["broken"]["status"] == "failed" and "| broken | failed |" in (out / "table.md").read_text()
    assert not [p for p in out.rglob(".*") if p.is_file()]  # no temporary files

    stood = {film: film.stat().st_mtime_ns for film in films}
    assert "2 of 3 objects animated (2 of them before)" in batch(config)
    assert {film: film.stat().st_mtime_ns for film in films} == stood
    ball(first, seed=5)  # another object under the same name
    (folder / "broken.ply").unlink()
    ball(folder / "broken.ply", seed=2)
    assert "3 of 3 objects animated (1 of them before)" in batch(config)
    assert films[0].stat().st_mtime_ns > stood[films[0]] and films[1].stat().st_mtime_ns == stood[films[1]]
    assert not (out / "failures.txt").exists()


def test_other_options_are_other_films(tmp_path: Path) -> None:
    (tmp_path / "a.ply").write_bytes(b"x")
    config = BatchConfig(tmp_path, tmp_path / "out")
    keys = {
        jobs_of(BatchConfig(tmp_path, tmp_path / "out", **change))[0].key
        for change in ({}, {"motion": "poke"}, {"seconds": 2.0}, {"film": "webm"}, {"export": ("npz",)}, {"seed": 1})
    }
    assert len(keys) == 6 and jobs_of(config)[0].key in keys
    same = BatchConfig(tmp_path, tmp_path / "out", workers=7, threads=2, limit=1)
    assert jobs_of(same)[0].key == jobs_of(config)[0].key


def test_the_contact_sheet_shows_every_object(tmp_path: Path) -> None:
    from PIL import Image

    from pipelines.batch_jobs import DONE, Record
    from pipelines.batch_tables import write_contact_sheets

    strip = tmp_path / "strip.png"
    Image.new("RGB", (336, 112), (0, 128, 0)).save(strip)
    shown = [(Record(f"o{k:03d}", "s", DONE if k % 2 else FAILED, "", reason="no"), strip) for k in range(100)]
    (tmp_path / "contact_sheet_3.png").touch()  # of an earlier, larger batch
    first, second = write_contact_sheets(tmp_path, shown)
    assert not (tmp_path / "contact_sheet_3.png").exists()
    sheet = np.asarray(Image.open(first))
    assert sheet.shape == (32 * 136, 3 * 344, 3)
    green = [(sheet[k // 3 * 136 + 60, k % 3 * 344 + 170] == (0, 128, 0)).all() for k in range(96)]
    assert green == [k % 2 == 1 for k in range(96)]
    assert Image.open(second).size == (3 * 344, 2 * 136)


@pytest.mark.parametrize("work", [batch_work.die_once, batch_work.die_after_the_record])
def test_a_process_that_dies_costs_nothing(tmp_path: Path, work) -> None:
    wanted = jobs(tmp_path)
    records = list(run_local(wanted, work, workers=2))
    assert sorted(record.name for record in records) == [job.name for job in wanted]
    assert all(finished(job) for job in wanted)
    done = Counter(name for what, name, _ in batch_work.logged(wanted[0]) if what == "done")
    assert done == {job.name: 1 for job in wanted}  # nothing lost, nothing done twice


def test_what_kills_its_process_every_time_is_a_failure_and_stops_nothing(tmp_path: Path) -> None:
    wanted = jobs(tmp_path, 4)
    records = {record.name: record for record in run_local(wanted, batch_work.die_always, workers=2)}
    assert [records[job.name].status for job in wanted] == ["done", "failed", "done", "done"]
    assert "SIGKILL" in records["object_1"].reason and "out of memory" in records["object_1"].reason
    kept = read_record(wanted[1].record)
    assert kept is not None and kept.status == FAILED
    assert Counter(name for what, name, _ in batch_work.logged(wanted[0]) if what == "start")["object_1"] == 2


def test_files_may_vanish_while_it_runs(tmp_path: Path) -> None:
    job = Job("gone", str(tmp_path / "gone.ply"), str(tmp_path / "out"), ".mp4", {})
    record = do_job(job)
    assert record.status == FAILED and "gone.ply" in record.reason


@pytest.mark.slow
def test_ctrl_c_leaves_whole_files_and_a_table(tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    for k in range(3):
        ball(folder / f"{k}.ply", seed=k)
    command = [sys.executable, "-m", "pipelines.cli", "batch", str(folder), "-o", str(out), "--workers", "2"]
    command += ["--seconds", "2", "--size", "2400x2400", "--field", "gaussians"]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not list(out.rglob(".*.mp4")):
            time.sleep(0.1)
        assert list(out.rglob(".*.mp4"))  # films are being written
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does it
        err = process.communicate(timeout=60)[1]
    finally:
        process.kill()
    assert process.returncode == 130 and "Traceback" not in err
    left = sorted(path.name for path in out.rglob("*") if path.is_file())
    assert left == ["table.csv", "table.jsonl", "table.md"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--motion", "drpo"], "Did you mean drop"),
        (["--material", "jely"], "Did you mean jelly"),
        (["--size", "640"], "WIDTHxHEIGHT"),
        (["--camera", "nowhere.json"], "nowhere.json"),
        (["--camera", "round"], "neither orbit"),
        (["--up", "sideways"], "Up axis"),
        (["--pin", "0,0,0,1,1,1"], "--pin"),
        (["--export", "ply:there"], "--export"),
        (["--workers", "0"], "--workers 0"),
        (["--handles", "0"], "--handles"),
        (["--background", "transparent"], "alpha"),
        (["--address", "auto"], "--engine ray"),
    ],
)
def test_options_that_fit_no_object_are_said_before_the_work(tmp_path, capsys, options, said) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.ply").write_bytes(b"x")
    assert main(["batch", str(tmp_path / "in"), "-o", str(tmp_path / "out"), *options]) == 2
    assert said in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_folders_without_objects_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no folder"):
        batch(BatchConfig(tmp_path / "none", tmp_path / "out"))
    with pytest.raises(InputError, match="holds no splat files"):
        batch(BatchConfig(tmp_path, tmp_path / "out"))


@pytest.mark.slow
def test_a_ray_worker_killed_mid_run(tmp_path: Path) -> None:
    """Two workers; one is killed from outside in the middle of an object. Nothing is lost, nothing done twice."""
    pytest.importorskip("ray")
    wanted = jobs(tmp_path, 12)
    marker = tmp_path / "out" / "pid"

    def kill() -> None:
        deadline = time.monotonic() + 120
        while not marker.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        os.kill(int(marker.read_text().split()[0]), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    records = list(run_ray(wanted, batch_work.wait_to_be_killed, workers=2))
    killer.join()
    assert sorted(record.name for record in records) == sorted(job.name for job in wanted)
    assert all(record.status == "done" for record in records) and all(finished(job) for job in wanted)
    log = batch_work.logged(wanted[0])
    assert Counter(name for what, name, _ in log if what == "done") == {job.name: 1 for job in wanted}
    hit = marker.read_text().split()[1]
    starts = Counter(name for what, name, _ in log if what == "start")
    assert starts[hit] == 2 and sum(starts.values()) == 13  # the one that was hit began again, no other did


@pytest.mark.slow
def test_ray_and_local_make_the_same_films(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    for k in range(3):
        ball(tmp_path / "in" / f"{k}.ply", seed=k)
    for engine in ("local", "ray"):
        batch(BatchConfig(tmp_path / "in", tmp_path / engine, engine=engine, workers=2, **SHORT))
    for k in range(3):
        assert (tmp_path / "local" / f"{k}.mp4").read_bytes() == (tmp_path / "ray" / f"{k}.mp4").read_bytes()


@pytest.mark.slow
def test_a_ray_cluster_that_does_not_answer_is_said(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    ball(tmp_path / "in" / "a.ply")
    with pytest.raises(InputError, match="no Ray cluster answers"):
        batch(BatchConfig(tmp_path / "in", tmp_path / "out", engine="ray", address="127.0.0.1:1", **SHORT))
