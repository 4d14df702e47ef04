"""Scenarios: what decides a run (``specification``, ``fields``), read from a file (``parser``) with keys
replaced (``settings``)."""

from llmsim.scenario.parser import load_scenario
from llmsim.scenario.specification import Pool, Run, Scenario, scenario_schema

__all__ = ["Pool", "Run", "Scenario", "load_scenario", "scenario_schema"]
