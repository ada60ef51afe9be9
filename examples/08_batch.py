"""A folder of captures to films, with a contact sheet and a table; run again, it has nothing left to do."""

from pathlib import Path

from pipelines.batch import BatchConfig, batch
from splatanim.formats import write_splats
from splatanim.samples import make_sample

if __name__ == "__main__":  # its processes import this file again
    for k, name in enumerate(("jelly", "plush")):
        Path("objects", name).mkdir(parents=True, exist_ok=True)
        write_splats(Path("objects", name, f"{k}.ply"), make_sample(name, seed=k), up="-y")
    Path("objects", "broken.ply").write_text("not a capture at all")

    config = BatchConfig(Path("objects"), Path("films"), motion="drop", seconds=0.5, size="160x160")
    print(batch(config))
    print(batch(config))
    print(Path("films", "table.md").read_text())
