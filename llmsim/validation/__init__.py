"""Real servers: what benchmarks measured on them, in llmsim's definitions, to compare simulations with.

``compare.validate`` reads tables of measured values, simulates what each row needs and scores it; ``fitting.calibrate``
fits an accelerator to one's own measurements; ``overlay.overlay`` puts a measured trace beside its simulation.
``readers`` reads what benchmark tools write.
"""
