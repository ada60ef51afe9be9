"""What a batch did, to look at and to read on: a table as CSV, Markdown and JSON lines, and contact sheets."""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.batch_jobs import DONE, FAILED, Record
from splatanim.formats.atomic import atomic_path

if TYPE_CHECKING:
    from PIL.Image import Image

COLUMNS = ("name", "status", "splats", "left_out", "frames", "handles", "converged", "penetration", "seconds", "reason")
_ON_A_PAGE = 96  # objects on a contact sheet
_ACROSS = 3
_STRIP = (336, 112)  # pixels: three thumbnails
_LINE = 16


def write_tables(output: Path, records: Sequence[Record]) -> None:
    """``table.csv``, ``table.md`` and ``table.jsonl``, sorted by name, and ``failures.txt`` where there are any."""
    rows = sorted(records, key=lambda record: record.name)
    with atomic_path(output / "table.jsonl") as path:
        path.write_text("".join(json.dumps(dataclasses.asdict(row)) + "\n" for row in rows), encoding="utf-8")
    with atomic_path(output / "table.csv") as path, open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*COLUMNS, "film", "notes"])
        for row in rows:
            writer.writerow([*(getattr(row, name) for name in COLUMNS), row.film, " ".join(row.notes)])
    with atomic_path(output / "table.md") as path:
        path.write_text(_markdown(rows), encoding="utf-8")
    failures = output / "failures.txt"
    said = [f"{row.source}\t{row.reason}\n" for row in rows if row.status == FAILED]
    if said:
        with atomic_path(failures) as path:
            path.write_text("".join(said), encoding="utf-8")
    else:
        failures.unlink(missing_ok=True)


def _markdown(rows: Sequence[Record]) -> str:
    done = [row for row in rows if row.status == DONE]
    head = f"{len(done)} of {len(rows)} objects animated, {sum(row.seconds for row in done):.0f} s of work.\n\n"
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    for row in rows:
        cells = [_cell(getattr(row, name)) for name in COLUMNS]
        lines.append("| " + " | ".join(cells) + " |")
    return head + "\n".join(lines) + "\n"


def _cell(value: object) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|")


def write_contact_sheets(output: Path, shown: Sequence[tuple[Record, Path]]) -> list[Path]:
    """``contact_sheet.png``, ``contact_sheet_2.png`` ...: of every object the first, middle and last frame over its
    name (of a failed one the reason); ``shown`` are records and the files of their strips. Returns the paths."""
    rows = sorted(shown, key=lambda item: item[0].name)
    pages = [rows[start : start + _ON_A_PAGE] for start in range(0, len(rows), _ON_A_PAGE)]
    paths = []
    for number, page in enumerate(pages, start=1):
        target = output / ("contact_sheet.png" if number == 1 else f"contact_sheet_{number}.png")
        with atomic_path(target) as temporary:
            _page(page).save(temporary)
        paths.append(target)
    number = len(pages) + 1
    while (old := output / f"contact_sheet_{number}.png").is_file():  # of a larger batch before
        old.unlink()
        number += 1
    return paths


def _page(items: Sequence[tuple[Record, Path]]) -> Image:
    from PIL import Image, ImageDraw

    across = min(_ACROSS, len(items))
    down = -(-len(items) // across)
    width, height = _STRIP[0] + 8, _STRIP[1] + _LINE + 8
    sheet = Image.new("RGB", (across * width, down * height), "white")
    draw = ImageDraw.Draw(sheet)
    for k, (record, strip) in enumerate(items):
        x, y = (k % across) * width + 4, (k // across) * height + 4
        if record.status == DONE and strip.is_file():
            with Image.open(strip) as picture:
                fitted = picture.convert("RGB")
                fitted.thumbnail(_STRIP)
                sheet.paste(fitted, (x + (_STRIP[0] - fitted.width) // 2, y))
        else:
            draw.rectangle((x, y, x + _STRIP[0], y + _STRIP[1]), fill=(250, 230, 228))
            draw.multiline_text((x + 6, y + 6), _wrapped(record.reason, 52, 6), fill=(150, 30, 20))
        draw.text((x, y + _STRIP[1] + 1), _fitted(record.name, 54), fill=(40, 40, 40))
    return sheet


def _wrapped(text: str, width: int, lines: int) -> str:
    import textwrap

    return "\n".join(textwrap.wrap(_plain(text), width)[:lines])


def _fitted(name: str, width: int) -> str:
    """The end of a name, which tells more than its beginning."""
    name = _plain(name)
    return name if len(name) <= width else "..." + name[3 - width :]


def _plain(text: str) -> str:
    """What the built-in font can draw."""
    return text.encode("latin-1", "replace").decode("latin-1")
