"""3DGS .ply files: see :mod:`.ply_table` (container), :mod:`.ply_dialects` (columns), and the two ends below."""

from splatanim.formats.ply_read import read_ply
from splatanim.formats.ply_write import ply_with_up, write_ply

__all__ = ["ply_with_up", "read_ply", "write_ply"]
