"""Rigs: skeletons, skinning weights, clips of motion, the files that hold them, and splats that follow them."""
