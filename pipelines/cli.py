"""The ``splatanim`` command: parse, call, print."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

# Before numba and torch load: threads that wait must sleep, not spin, where both share few cores.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import tyro
from tyro.conf import OmitArgPrefixes, OmitSubcommandPrefixes, subcommand

from pipelines.animate import AnimateConfig
from pipelines.bench_raster import BenchRaster
from pipelines.bench_step import BenchStepConfig
from pipelines.evaluate_fields import EvaluateFieldsConfig
from pipelines.fields import FieldsConfig
from pipelines.inspect_scene import InspectConfig
from pipelines.progress import Progress
from pipelines.still import RenderConfig, SampleConfig
from pipelines.train_fields import TrainFieldsConfig
from splatanim.errors import InputError, OutputError

Bench = (
    Annotated[BenchRaster, subcommand("raster")]
    | Annotated[BenchStepConfig, subcommand("step")]
    | Annotated[EvaluateFieldsConfig, subcommand("fields")]
)
Command = (
    Annotated[AnimateConfig, subcommand("animate")]
    | Annotated[InspectConfig, subcommand("inspect")]
    | Annotated[RenderConfig, subcommand("render")]
    | Annotated[SampleConfig, subcommand("sample")]
    | Annotated[FieldsConfig, subcommand("fields")]
    | Annotated[TrainFieldsConfig, subcommand("train-fields")]
    | Annotated[Bench, subcommand("bench", description="Measure this machine: raster, step or fields.")]
)


def _animate(config: AnimateConfig) -> str:
    from pipelines.animate import animate
    from pipelines.report import summary, write_report

    result = animate(config, Progress(None))
    if config.report is not None:
        write_report(result, config.report)
    return summary(result)


def _inspect(config: InspectConfig) -> str:
    from pipelines.inspect_scene import inspect_scene

    return inspect_scene(config)


def _render(config: RenderConfig) -> str:
    from pipelines.still import render_still

    return render_still(config, Progress(None))


def _sample(config: SampleConfig) -> str:
    from pipelines.still import write_sample

    return write_sample(config)


def _fields(config: FieldsConfig) -> str:
    from pipelines.fields import fields

    return fields(config, Progress(None))


def _train_fields(config: TrainFieldsConfig) -> str:
    from pipelines.train_fields import train_fields

    return train_fields(config, Progress(None))


def _bench_fields(config: EvaluateFieldsConfig) -> str:
    from pipelines.evaluate_fields import evaluate_fields

    return evaluate_fields(config, Progress(None))


def _bench_raster(config: BenchRaster) -> str:
    from pipelines.bench_raster import bench_raster

    bench_raster(config)  # prints its rows as they come
    return ""


def _bench_step(config: BenchStepConfig) -> str:
    from pipelines.bench_step import bench_step

    return bench_step(config)


ACTIONS: dict[type, Callable[[Any], str]] = {
    AnimateConfig: _animate,
    InspectConfig: _inspect,
    RenderConfig: _render,
    SampleConfig: _sample,
    BenchRaster: _bench_raster,
    BenchStepConfig: _bench_step,
    FieldsConfig: _fields,
    TrainFieldsConfig: _train_fields,
    EvaluateFieldsConfig: _bench_fields,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point. Returns 0, or 2 after a message about bad input or output, or 130 after Ctrl-C."""
    try:
        config = tyro.cli(
            Command,
            prog="splatanim",
            description="Animate static captures: elastic physics for 3D Gaussian splats.",
            args=arguments,
            config=(OmitArgPrefixes, OmitSubcommandPrefixes),
        )
        text = ACTIONS[type(config)](config)
        if text:
            print(text)
    except (InputError, OutputError) as error:
        print(f"splatanim: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("splatanim: interrupted; nothing half written was left behind.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of a pipe, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return 0


if __name__ == "__main__":
    sys.exit(main())
