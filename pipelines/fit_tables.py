"""The tables of ``splatanim bench fit`` as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Row = dict[str, Any]


def study_table(title: str, rows: Sequence[Row]) -> str:
    """PSNR of the full frame / of the subject's pixels [dB], SSIM, LPIPS, and distances in thousandths of the scene's
    unit; a block a row name with every subject, and the mean where there are several."""
    lines = [
        f"## {title}",
        "",
        "| row | subject | train PSNR | SSIM | novel PSNR | SSIM | LPIPS train / novel | points e-3 | chamfer e-3 | "
        "joints e-3 | vertices e-3 | CPU s |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name in dict.fromkeys(row["row"] for row in rows):
        block = [row for row in rows if row["row"] == name]
        if len(block) > 1:
            block.append(mean_row(block))
        lines += [_line(row) for row in block]
    return "\n".join(lines)


def mean_row(rows: Sequence[Row]) -> Row:
    """The mean of every figure that all rows have."""
    out: Row = {"row": rows[0]["row"], "subject": "**mean**"}
    for key in ("points", "chamfer", "joints", "vertices", "seconds"):
        out[key] = _mean([row.get(key) for row in rows])
    for view in ("train", "novel"):
        if all(row.get(view) for row in rows):
            keys = ("psnr", "foreground", "ssim", "lpips")
            out[view] = {key: _mean([row[view].get(key) for row in rows]) for key in keys}
    return out


def _mean(values: Sequence[Any]) -> float | None:
    return float(np.mean(values)) if all(isinstance(value, float | int) for value in values) else None


def _line(row: Row) -> str:
    train, novel = row.get("train") or {}, row.get("novel") or {}
    cells = [
        row["row"],
        row["subject"],
        _pair(train),
        _number(train.get("ssim"), 4),
        _pair(novel),
        _number(novel.get("ssim"), 4),
        _lpips(train, novel),
        *(_number(row.get(key), 1, 1000.0) for key in ("points", "chamfer", "joints", "vertices")),
        _number(row.get("seconds"), 0),
    ]
    return "| " + " | ".join(cells) + " |"


def _pair(values: Row) -> str:
    if not values:
        return ""
    return f"{values['psnr']:.2f} / {values['foreground']:.2f}"


def _lpips(train: Row, novel: Row) -> str:
    if train.get("lpips") is None and novel.get("lpips") is None:
        return "not measured"
    return f"{_number(train.get('lpips'), 4)} / {_number(novel.get('lpips'), 4)}"


def _number(value: Any, digits: int, factor: float = 1.0) -> str:
    return f"{factor * value:.{digits}f}" if isinstance(value, float | int) else ""


def coarse_table(rows: Sequence[Row]) -> str:
    """Vertex errors of the coarse tracker [scene units]."""
    lines = ["| subject | mean error | p95 | worst frame | at rest | CPU s a frame |", "|---|---|---|---|---|---|"]
    for r in rows:
        lines.append(
            f"| {r['subject']} | {r['mean']:.4f} | {r['p95']:.4f} | {max(r['frames']):.4f} | {r['still']:.4f} | "
            f"{r['seconds']:.2f} |"
        )
    return "\n".join(lines)


def refined_table(rows: Sequence[Row]) -> str:
    """PSNR of the full frame / of the subject's pixels [dB], and vertex errors after the phases."""
    lines = [
        "| subject | mean error | train view | novel views | novel, unmoved | CPU s |",
        "|---|---|---|---|---|---|",
    ]
    for r in rows:
        cells = [f"{r[k]['psnr']:.2f} / {r[k]['foreground']:.2f}" for k in ("train", "novel", "unmoved")]
        lines.append(f"| {r['subject']} | {r['refined']:.4f} | {' | '.join(cells)} | {r['refine_seconds']:.0f} |")
    return "\n".join(lines)
