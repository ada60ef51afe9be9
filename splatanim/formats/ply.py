"""3DGS .ply files: see :mod:`.ply_table` (container), :mod:`.ply_dialects` (columns), and the two ends below."""

from splatanim.formats.ply_read import read_ply
from splatanim.formats.ply_write import write_ply, write_sequence_frame

__all__ = ["read_ply", "write_ply", "write_sequence_frame"]
