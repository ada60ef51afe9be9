"""Cameras, rasterisers and video."""
