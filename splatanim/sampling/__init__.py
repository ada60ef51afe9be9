"""From a capture or a mesh to integration points with volumes, and to points on its surface."""
