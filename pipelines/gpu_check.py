"""On a machine with an NVIDIA GPU: do both rasterisers give the same pictures, and how fast is each?

Run it with ``python -m pipelines.gpu_check``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

from pipelines.bench_raster import bench_camera, bumpy_sphere, image_psnr
from splatanim.render.rasterize import Backend, Rendering, cuda_available, rasterize

AGREEMENT_DB = 60.0  # gsplat blends in float32 with a fast exp; images differ in the last bits


def main(argv: list[str] | None = None) -> int:
    """Print a table; 0 where the backends agree or there is no GPU, 1 where they do not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splats", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args(argv)
    if not cuda_available():
        print("No CUDA device with gsplat is here, so there is nothing to compare; the CPU rasteriser needs neither.")
        return 0
    agree = True
    for degree in (0, 3):
        scene, camera = bumpy_sphere(options.splats, degree), bench_camera(options.size)

        def render(backend: Backend, scene=scene, camera=camera) -> Rendering:
            return rasterize(scene, camera, backend=backend, depth=True)

        cpu, cuda = render("cpu"), render("cuda")
        psnr = image_psnr(cpu.rgb, cuda.rgb)
        assert cpu.depth is not None and cuda.depth is not None
        solid = cpu.alpha > 0.5
        depth_error = float(abs(cpu.depth - cuda.depth)[solid].max()) if solid.any() else 0.0
        milliseconds = {}
        for backend in ("cpu", "cuda"):
            times = []
            for _ in range(options.repeats):
                begin = time.perf_counter()
                render(backend)
                times.append(1e3 * (time.perf_counter() - begin))
            milliseconds[backend] = statistics.median(times)
        print(
            f"{options.splats} splats, SH {degree}, {options.size} px: {psnr:.1f} dB, depth differs by at most "
            f"{depth_error:.2g}; cpu {milliseconds['cpu']:.1f} ms, cuda {milliseconds['cuda']:.1f} ms with transfers"
        )
        agree &= psnr >= AGREEMENT_DB
    print("The backends agree." if agree else f"The backends DIFFER: less than {AGREEMENT_DB:.0f} dB.")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
