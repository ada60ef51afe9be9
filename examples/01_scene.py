"""A jelly ball falls onto a bundled toy that lies on a floor; the film is scene.mp4."""

from pipelines.scene_run import animate_scene
from splatanim.dynamics.scene import Plane, Scene, SceneObject

toy = SceneObject("toy", sample="plush", material="plush")
ball = SceneObject("ball", shape="ball", size=0.35, at=(0.05, 1.3, 0.0), material="jelly", colour=(0.8, 0.2, 0.25))
result = animate_scene(Scene(objects=(toy, ball), planes=(Plane(),), seconds=1.5), "scene.mp4")
print(f"{result.film}: {100 * result.trajectory.converged_fraction:.0f} % of steps converged")
