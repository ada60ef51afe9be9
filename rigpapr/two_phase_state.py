"""Checkpoints of a fit under way: a safetensors file that an interrupted run leaves and ``--resume`` goes on from."""

from __future__ import annotations

import os
from typing import Any

import torch

from rigpapr.asset import load_tensors, save_tensors
from rigpapr.two_phase import Fit
from splatanim.errors import InputError

_VERSION = 2


def write_fit(path: str | os.PathLike[str], fit: Fit) -> None:
    """Turns, shifts, logits, the correction network and Adam's moments, and how far the phases are."""
    tensors = {"vectors": fit.vectors, "shifts": fit.shifts, "logits": fit.logits}
    tensors |= {f"net.{name}": value for name, value in fit.net.state_dict().items()}
    tensors |= {f"adam.{name}": value for name, value in fit.adam.items()}
    header = {"version": _VERSION, "frames_done": fit.frames_done, "steps_done": fit.steps_done}
    header["settled"] = fit.settled
    save_tensors(path, {k: v.detach().contiguous().clone() for k, v in tensors.items()}, "papr_fit", header)


def resume_fit(path: str | os.PathLike[str], fit: Fit) -> None:
    """Put a checkpoint's state into a fit of the same clip, rig and asset.

    Raises InputError for damaged or newer files, and for those of another clip, rig or asset.
    """
    tensors, header = load_tensors(path, "papr_fit")
    if header.get("version") != _VERSION:
        raise InputError(
            f"{path}: is a checkpoint of version {header.get('version')}, {_VERSION} is needed. Fit without --resume."
        )
    for name in ("vectors", "shifts", "logits"):
        wanted = tuple(getattr(fit, name).shape)
        found = tuple(tensors[name].shape) if name in tensors else "missing"
        if found != wanted:
            raise InputError(
                f"{path}: {name} is {found}, this fit needs {wanted}: the checkpoint belongs to another clip, rig or "
                "asset. Fit without --resume."
            )
    if not all(bool(torch.isfinite(value).all()) for value in tensors.values()):
        raise InputError(f"{path}: holds NaN or infinite values. Fit without --resume.")
    fit.vectors, fit.shifts, fit.logits = tensors["vectors"], tensors["shifts"], tensors["logits"]
    fit.adam = _part(tensors, "adam.")
    try:
        fit.net.load_state_dict(_part(tensors, "net."))
        fit.frames_done, fit.steps_done = int(header["frames_done"]), int(header["steps_done"])
        fit.settled = bool(header["settled"])
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{path}: the checkpoint is damaged ({error!r}). Fit without --resume.") from None


def _part(tensors: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {name[len(prefix) :]: value for name, value in tensors.items() if name.startswith(prefix)}
