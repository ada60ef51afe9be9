"""Live viewers: what moves, shown in the browser and in a window, to touch, pose and record."""
