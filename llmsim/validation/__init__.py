"""Real servers: what benchmarks measured on them, in llmsim's definitions, to compare simulations with."""
