"""PAPR neural point clouds: reconstructed from posed images, rendered by proximity attention, re-posed by their points.

The parts, in the order data flows: :mod:`rigpapr.dataset` reads posed images, :mod:`rigpapr.initialisation` places
points, :mod:`rigpapr.train` fits a :class:`rigpapr.cloud.PaprCloud`, :mod:`rigpapr.asset` keeps it in a file, and
:mod:`rigpapr.renderer` draws it, at rest or with moved points (papers: RigPAPR 3.2; PAPR, Zhang et al. 2023).
"""
