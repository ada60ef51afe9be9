"""A bundled jelly is poked; the film is jelly.mp4, and what happened is printed."""

from pathlib import Path

from pipelines.animate import AnimateConfig, animate
from pipelines.report import summary

result = animate(AnimateConfig(output=Path("jelly.mp4"), motion="poke", seconds=1.0, size="240x240"))
print(summary(result))
