"""The ``splatanim`` command: parse, call, print."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

# Before numba and torch load: threads that wait must sleep, not spin, where both share few cores.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Our matrices are small: a second BLAS thread is slower than none, and many times so beside other busy processes.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import tyro
from tyro.conf import OmitArgPrefixes, OmitSubcommandPrefixes, subcommand

from pipelines.animate import AnimateConfig, with_given
from pipelines.batch import BatchConfig
from pipelines.bench_raster import BenchRaster
from pipelines.bench_step import BenchStepConfig
from pipelines.convert import ConvertConfig
from pipelines.doctor import DoctorConfig
from pipelines.evaluate_complementary import EvaluateComplementaryConfig
from pipelines.evaluate_dynamics import EvaluateDynamicsConfig
from pipelines.evaluate_fields import EvaluateFieldsConfig
from pipelines.evaluate_papr import EvaluatePaprConfig
from pipelines.evaluate_rigpapr import EvaluateFitConfig
from pipelines.evaluate_rigs import EvaluateRigsConfig
from pipelines.fields import FieldsConfig
from pipelines.fit_rig import FitConfig
from pipelines.inspect_scene import InspectConfig
from pipelines.progress import Progress
from pipelines.reconstruct import ReconstructConfig
from pipelines.rig_verb import RigConfig
from pipelines.still import RenderConfig, SampleConfig
from pipelines.synth import SynthConfig
from pipelines.train_fields import TrainFieldsConfig
from pipelines.verify_dynamics import VerifyDynamicsConfig
from pipelines.view_config import BenchViewConfig, ViewConfig
from splatanim.errors import InputError, OutputError

Bench = (
    Annotated[BenchRaster, subcommand("raster")]
    | Annotated[BenchStepConfig, subcommand("step")]
    | Annotated[EvaluateFieldsConfig, subcommand("fields")]
    | Annotated[EvaluatePaprConfig, subcommand("papr")]
    | Annotated[EvaluateFitConfig, subcommand("fit")]
    | Annotated[EvaluateDynamicsConfig, subcommand("dynamics")]
    | Annotated[EvaluateComplementaryConfig, subcommand("complementary")]
    | Annotated[VerifyDynamicsConfig, subcommand("verify")]
    | Annotated[EvaluateRigsConfig, subcommand("rigs")]
    | Annotated[BenchViewConfig, subcommand("view")]
)
Command = (
    Annotated[AnimateConfig, subcommand("animate")]
    | Annotated[ViewConfig, subcommand("view")]
    | Annotated[InspectConfig, subcommand("inspect")]
    | Annotated[RenderConfig, subcommand("render")]
    | Annotated[SampleConfig, subcommand("sample")]
    | Annotated[ConvertConfig, subcommand("convert")]
    | Annotated[BatchConfig, subcommand("batch")]
    | Annotated[DoctorConfig, subcommand("doctor")]
    | Annotated[RigConfig, subcommand("rig")]
    | Annotated[ReconstructConfig, subcommand("reconstruct")]
    | Annotated[FitConfig, subcommand("fit")]
    | Annotated[SynthConfig, subcommand("synth")]
    | Annotated[FieldsConfig, subcommand("fields")]
    | Annotated[TrainFieldsConfig, subcommand("train-fields")]
    | Annotated[Bench, subcommand("bench", description="Measure speed, quality and correctness.")]
)


def _animate(config: AnimateConfig) -> str:
    from pipelines.animate import animate
    from pipelines.report import summary, write_report
    from pipelines.scene_verb import animate_scene_file, schema_tables

    if config.scene_schema:
        return schema_tables()
    if config.is_rigged:
        from pipelines.rigged_verb import animate_with_rig

        return animate_with_rig(config, Progress(None))
    if config.is_scene:
        return animate_scene_file(config, Progress(None))
    result = animate(config, Progress(None))
    if config.report is not None:
        write_report(result, config.report)
    return summary(result)


def _view(config: ViewConfig) -> str:
    from viewers.verb import view

    return view(config)


def _bench_view(config: BenchViewConfig) -> str:
    from viewers.bench import bench_view

    return bench_view(config)


def _inspect(config: InspectConfig) -> str:
    from pipelines.inspect_scene import inspect_scene

    return inspect_scene(config)


def _render(config: RenderConfig) -> str:
    from pipelines.still import render_still

    return render_still(config, Progress(None))


def _sample(config: SampleConfig) -> str:
    from pipelines.still import write_sample

    return write_sample(config)


def _convert(config: ConvertConfig) -> str:
    from pipelines.convert import convert

    return convert(config)


def _batch(config: BatchConfig) -> str:
    from pipelines.batch import batch

    return batch(config, Progress(None))


def _doctor(config: DoctorConfig) -> str:
    from pipelines.doctor import doctor

    text, healthy = doctor(config)
    if not healthy:
        print(text)
        raise SystemExit(1)
    return text


def _reconstruct(config: ReconstructConfig) -> str:
    from pipelines.reconstruct import reconstruct

    return reconstruct(config, Progress(None))


def _fit(config: FitConfig) -> str:
    from pipelines.fit_rig import fit_rig

    return fit_rig(config, Progress(None))


def _synth(config: SynthConfig) -> str:
    from pipelines.synth import synth

    return str(synth(config, Progress(None)))


def _rig(config: RigConfig) -> str:
    from pipelines.rig_verb import rig

    return rig(config, Progress(None))


def _fields(config: FieldsConfig) -> str:
    from pipelines.fields import fields

    return fields(config, Progress(None))


def _train_fields(config: TrainFieldsConfig) -> str:
    from pipelines.train_fields import train_fields

    return train_fields(config, Progress(None))


def _bench_fields(config: EvaluateFieldsConfig) -> str:
    from pipelines.evaluate_fields import evaluate_fields

    return evaluate_fields(config, Progress(None))


def _bench_dynamics(config: EvaluateDynamicsConfig) -> str:
    from pipelines.evaluate_dynamics import evaluate_dynamics

    return evaluate_dynamics(config, Progress(None))


def _bench_verify(config: VerifyDynamicsConfig) -> str:
    from pipelines.verify_dynamics import verify_dynamics

    return verify_dynamics(config)


def _bench_complementary(config: EvaluateComplementaryConfig) -> str:
    from pipelines.evaluate_complementary import evaluate_complementary

    return evaluate_complementary(config, Progress(None))


def _bench_papr(config: EvaluatePaprConfig) -> str:
    from pipelines.evaluate_papr import evaluate_papr

    return evaluate_papr(config, Progress(None))


def _bench_rigs(config: EvaluateRigsConfig) -> str:
    from pipelines.evaluate_rigs import evaluate_rigs

    return evaluate_rigs(config, Progress(None))


def _bench_fit(config: EvaluateFitConfig) -> str:
    from pipelines.evaluate_rigpapr import evaluate_fit

    return evaluate_fit(config, Progress(None))


def _bench_raster(config: BenchRaster) -> str:
    from pipelines.bench_raster import bench_raster

    bench_raster(config)  # prints its rows as they come
    return ""


def _bench_step(config: BenchStepConfig) -> str:
    from pipelines.bench_step import bench_step

    return bench_step(config)


ACTIONS: dict[type, Callable[[Any], str]] = {
    AnimateConfig: _animate,
    ViewConfig: _view,
    BenchViewConfig: _bench_view,
    InspectConfig: _inspect,
    RenderConfig: _render,
    SampleConfig: _sample,
    ConvertConfig: _convert,
    BatchConfig: _batch,
    DoctorConfig: _doctor,
    BenchRaster: _bench_raster,
    BenchStepConfig: _bench_step,
    RigConfig: _rig,
    ReconstructConfig: _reconstruct,
    FitConfig: _fit,
    SynthConfig: _synth,
    FieldsConfig: _fields,
    TrainFieldsConfig: _train_fields,
    EvaluateFieldsConfig: _bench_fields,
    EvaluatePaprConfig: _bench_papr,
    EvaluateComplementaryConfig: _bench_complementary,
    EvaluateFitConfig: _bench_fit,
    EvaluateDynamicsConfig: _bench_dynamics,
    VerifyDynamicsConfig: _bench_verify,
    EvaluateRigsConfig: _bench_rigs,
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
        if isinstance(config, AnimateConfig):
            config = with_given(config, sys.argv[1:] if arguments is None else arguments)
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
