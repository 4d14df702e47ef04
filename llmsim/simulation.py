"""``simulate``: from a scenario to results. Builds the fleet, runs it, and collects what it left behind."""

from typing import Any

from simpy import Environment

from llmsim.cluster.collect import Collector, Stage
from llmsim.cluster.fleet import Fleet, Progress, Station
from llmsim.engine.decisions import Decisions
from llmsim.engine.kv import BlockGroups, BlockPool
from llmsim.engine.prefix import PrefixCache
from llmsim.engine.prompt_keys import PromptKeys
from llmsim.engine.replica import Replica
from llmsim.engine.state import EngineState
from llmsim.errors import ScenarioError
from llmsim.results.metrics import summarise_measured
from llmsim.results.record import RunFacts, RunRecord
from llmsim.results.recorder import Recorder
from llmsim.results.results import Results
from llmsim.scenario import Pool, Scenario
from llmsim.units import NS_PER_S, to_ns
from llmsim.workload import RequestTable
from llmsim.workload.random_streams import stream


def simulate(
    scenario: Scenario, *, progress: Progress | None = None, decisions: list[Decisions] | None = None
) -> Results:
    """Run a scenario.

    ``progress`` is called now and then, with the simulated time in seconds, the requests done and all requests. An
    empty list ``decisions`` is filled with one log of scheduling decisions a replica.

    Raises:
        ScenarioError: when the workload is empty or cannot be read.
        SimulationError: when an invariant of the simulation breaks.
    """
    table = scenario.workload.generate(scenario.seed)
    if not len(table):
        raise ScenarioError("the workload has no requests")
    level = scenario.run.record
    recorder = Recorder(len(table), level)
    env = Environment()
    stations, stages = _build(scenario, env, table, recorder, decisions)
    window_ns = _window_ns(scenario, table)
    collector = Collector(recorder, table, stages, level, window_ns, scenario.slo)
    fleet = Fleet(env, table, stations, scenario.router.start(stream(scenario.seed, "router")), recorder)
    fleet.run(window_ns[1], progress)
    totals, end_ns = collector.finish()
    facts = _facts(scenario, fleet, window_ns[0], end_ns)
    record = RunRecord(facts, totals, collector.requests, collector.iterations, collector.preemptions())
    return Results(record, summarise_measured(facts, totals, collector.measured(end_ns)))


def _build(
    scenario: Scenario,
    env: Environment,
    table: RequestTable,
    recorder: Recorder,
    decisions: list[Decisions] | None,
) -> tuple[list[Station], list[Stage]]:
    """The replicas of all pools, in order, as requests and as the reader of rows see them."""
    stations: list[Station] = []
    stages: list[Stage] = []
    keys: dict[int, PromptKeys] = {}
    for pool in scenario.pools:
        deployment = pool.deployment()
        ledger = deployment.ledger()
        cost = pool.cost.start(deployment)
        limits = pool.engine.scheduler.resolve(pool.accelerator, ledger.max_model_len)
        size = pool.engine.block_size
        groups = BlockGroups.of(deployment, ledger.max_model_len, reserves_kv=limits.reserves_kv)
        if pool.engine.enable_prefix_caching and size not in keys:
            keys[size] = PromptKeys(table, size)
        for _ in range(pool.replicas):
            cache = keys[size] if pool.engine.enable_prefix_caching else None
            blocks = ledger.num_gpu_blocks - 1
            state = EngineState(
                PrefixCache(blocks, cache, groups) if cache else BlockPool(blocks, groups),
                limits.queue(),
                groups,
                window=deployment.model.sliding_window if deployment.model.sliding_window_layers else None,
                batches_in_flight=max(limits.batches_in_flight, pool.pipeline_parallel_size),
                lanes=pool.pipeline_parallel_size,
                reserves_kv=limits.reserves_kv,
            )
            log = Decisions() if decisions is not None else None
            if decisions is not None and log is not None:
                decisions.append(log)
            policy = limits.start(state)
            replica = Replica(env, len(stations), state, policy, cost, recorder, leaps=scenario.run.leap, decisions=log)
            stations.append(Station(replica, to_ns(cost.request_s), ledger.max_model_len, cache))
            stages.append(Stage(pool.name, cost, deployment.gpus, blocks))
    return stations, stages


def _window_ns(scenario: Scenario, table: RequestTable) -> tuple[int, int | None]:
    """The measured window: after the warm-up, until the horizon or (None) the last event."""
    horizon_s, warm_up_ns = scenario.run.horizon_s, to_ns(scenario.run.warm_up_s)
    if horizon_s is not None:
        return warm_up_ns, to_ns(horizon_s)
    return int(table.arrival_ns[table.after < 0].min()) + warm_up_ns, None


def _facts(scenario: Scenario, fleet: Fleet, start_ns: int, end_ns: int) -> RunFacts:
    deployments = [(pool, pool.deployment()) for pool in scenario.pools]
    gpus = [pool.replicas * deployment.gpus for pool, deployment in deployments]
    prices = [pool.accelerator.price_usd_per_hour for pool in scenario.pools]
    known = [price * count for price, count in zip(prices, gpus, strict=True) if price is not None]
    return RunFacts(
        scenario=scenario.name,
        scenario_text=scenario.canonical(),
        seed=scenario.seed,
        gpus=sum(gpus),
        replicas=sum(pool.replicas for pool in scenario.pools),
        window_start_s=start_ns / NS_PER_S,
        window_end_s=end_ns / NS_PER_S,
        peak_flop_per_s=sum(count * d.peak_flop_per_s for count, (_, d) in zip(gpus, deployments, strict=True)),
        peak_hbm_bytes_per_s=sum(
            count * pool.accelerator.hbm_bandwidth_bytes_per_s for count, pool in zip(gpus, scenario.pools, strict=True)
        ),
        cost_usd_per_hour=sum(known) if len(known) == len(prices) else None,
        slo=dict(scenario.slo),
        record=scenario.run.record,
        events=fleet.events,
        leaped_iterations=fleet.leaped_iterations,
        pools=[_pool_facts(pool) for pool in scenario.pools],
        notes=sorted({note for pool in scenario.pools for note in _notes(pool)}),
    )


def _pool_facts(pool: Pool) -> dict[str, Any]:
    deployment = pool.deployment()
    ledger = deployment.ledger()
    return {
        "name": pool.name,
        "model": deployment.model.name,
        "accelerator": pool.accelerator.name,
        "weight_dtype": deployment.weight_dtype,
        "experts": deployment.model.moe is not None,
        "replicas": pool.replicas,
        "tensor_parallel_size": pool.tensor_parallel_size,
        "pipeline_parallel_size": pool.pipeline_parallel_size,
        "data_parallel_size": pool.data_parallel_size,
        "num_gpu_blocks": ledger.num_gpu_blocks,
        "max_model_len": ledger.max_model_len,
        "max_num_seqs": deployment.max_num_seqs,
        "max_num_batched_tokens": deployment.max_num_batched_tokens,
        "ledger": ledger.as_dict(),
    }


def _notes(pool: Pool) -> list[str]:
    """What a reader should know about the figures of a pool."""
    notes = [f"pool {pool.name}: {note}" for note in pool.deployment().ledger().notes]
    if (lender := pool.accelerator.efficiency.borrowed_from) is not None:
        notes.append(f"{pool.accelerator.name}: efficiencies are not fitted but borrowed from {lender}")
    if pool.accelerator.price_usd_per_hour is None:
        notes.append(f"{pool.accelerator.name}: no price is known")
    return notes
