"""Decode is bound by bandwidth, prefill by compute: the roofline, and the proof by changing the machine."""

from dataclasses import replace

from llmsim.closed_form import Line, decodes, knee_tokens, prompts, ridge_flop_per_byte, spent
from llmsim.cost import Batch
from llmsim.questions.answer import Answer, Command, Contrast, Picture, Series
from llmsim.questions.subject import Subject
from llmsim.questions.worked import ENVELOPE, bound, decode_line, mean, time_line
from llmsim.units import TERA, format_duration, format_percent

PROMPT, CONTEXT = 960, 1000
LONG_PROMPT, OUTPUT = 4096, 64
"""Of the requests whose machine is changed: long enough that launches count little."""
BATCHES = (1, 8, 64, 256)
PROMPTS = (16, 64, 256, 960, 4096)


def answer(subject: Subject) -> Answer:
    """The answer for a prompt of 960 tokens and decode at 1,000 of context."""
    arithmetic = _arithmetic(subject)
    worked, contrasts = {line.key: line.value for line in arithmetic}, _contrasts(subject)
    return Answer(
        short=_short(subject, worked, contrasts),
        arithmetic=arithmetic,
        contrasts=contrasts,
        pitfalls=(
            "Measure the machine (matrix products, copies) before you compare with its data sheet",
            "Correlation is not proof: change clock, bandwidth or bytes of weights and see which time follows",
            "GPU utilisation of 100 % says that some kernel runs, not that it runs well",
            "A large batch makes the matrices of decode bound by compute in the end, its attention never",
            "Small models without CUDA graphs are bound by launches, a third regime",
        ),
        commands=(
            Command(f"llmsim explain {subject.flags} --ideal --only decode --batch 256", "A decode step of 256"),
            Command(f"llmsim explain {subject.flags} --only prefill --prompt 200", "A prompt below the knee"),
            Command("llmsim ask 3 --accelerator l4", "On an L4"),
        ),
        pictures=(_picture(subject),),
        notes=(f"The changed machines serve one request of {_long(subject):,} tokens in and {OUTPUT} out, alone",),
    )


def _arithmetic(subject: Subject) -> tuple[Line, ...]:
    deployment, window = subject.deployment(), subject.model.sliding_window
    peak, bandwidth = deployment.peak_flop_per_s, deployment.accelerator.hbm_bandwidth_bytes_per_s
    cost = ENVELOPE.start(deployment)
    decode, prefill = spent(cost, decodes(1, CONTEXT, window)), spent(cost, prompts(1, PROMPT, window=window))
    floor = decode.hbm_bytes / bandwidth
    at_peak, read = prefill.flop / peak, prefill.hbm_bytes / bandwidth
    step = decode_line("step_1", "decode step of 1", deployment, 1, CONTEXT)
    mfu = {"flop": decode.flop, "peak": peak, "step": step.value}
    lines = [
        Line("ridge", "ridge of the roofline", ridge_flop_per_byte(deployment), "FLOP/byte", "peak / bandwidth",
             {"peak": peak, "bandwidth": bandwidth}),
        Line("prefill_at_peak_s", f"FLOPs of a prompt of {PROMPT} at peak", at_peak, "s", "flop / peak",
             {"flop": prefill.flop, "peak": peak}),
        Line("prefill_read_s", "its weights, read at full bandwidth", read, "s", "bytes / bandwidth",
             {"bytes": prefill.hbm_bytes, "bandwidth": bandwidth}),
        Line("prefill_ratio", "compute over memory", at_peak / read, "", "flops / read",
             {"flops": at_peak, "read": read}),
        Line("decode_floor_s", "bytes of one decode at full bandwidth", floor, "s", "bytes / bandwidth",
             {"bytes": decode.hbm_bytes, "bandwidth": bandwidth}),
        step,
        Line("decode_mfu", "share of peak FLOP/s in it", decode.flop / peak / step.value, "share",
             "flop / (peak * step)", mfu),
        *(decode_line(f"step_{batch}", f"decode step of {batch}", deployment, batch, CONTEXT) for batch in BATCHES[2:]),
        time_line("prefill_s", f"prefill of {PROMPT}", deployment, prompts(1, PROMPT, window=window)),
    ]  # fmt: skip
    knee = knee_tokens(cost)
    if knee is not None:
        lines.append(Line("knee_tokens", "prompts bound by compute from (tokens)", knee, "tokens"))
    return tuple(lines)


def _contrasts(subject: Subject) -> tuple[Contrast, ...]:
    slow_compute, slow_memory = _slower(subject, flop=0.5), _slower(subject, hbm=0.5)
    prompt, window = _long(subject), subject.model.sliding_window
    base = subject.alone(prompt, OUTPUT)
    outside = subject.accelerator.efficiency.request_s
    batches = {"prefill": prompts(1, prompt, window=window), "decode": decodes(1, prompt, window)}
    found = []
    for changed, name in ((slow_compute, "FLOP/s"), (slow_memory, "bandwidth")):
        run = changed.alone(prompt, OUTPUT)
        for phase, batch in batches.items():
            closed = [each.envelope().step(batch).occupancy_s for each in (changed, subject)]
            metric, aside = ("ttft", outside) if phase == "prefill" else ("tpot", 0.0)
            ratio = (mean(run, metric) - aside) / (mean(base, metric) - aside)
            key = f"{phase}_{'flop' if name == 'FLOP/s' else 'hbm'}"
            factor = closed[0] / closed[1]
            found.append(Contrast(key, f"{phase} time, {name} halved", "", factor, ratio, _why(factor, ratio)))
    return tuple(found)


def _long(subject: Subject) -> int:
    return min(LONG_PROMPT, subject.longest - OUTPUT)


def _why(factor: float, ratio: float) -> str:
    """What a ratio of times shows, closed form and simulated."""
    if factor > 1.05:
        return "it is the bound; the host, launches and what needs the other resource stay"
    return "it is not the bound" + ("; kernels need a little of both" if ratio > 1.05 else "")


def _slower(subject: Subject, flop: float = 1.0, hbm: float = 1.0) -> Subject:
    """The same machine with a part of its FLOP/s or bandwidth."""
    old = subject.accelerator
    peaks = {dtype: flop * peak for dtype, peak in old.peak_flop_per_s.items()}
    new = replace(old, peak_flop_per_s=peaks, hbm_bandwidth_bytes_per_s=hbm * old.hbm_bandwidth_bytes_per_s)
    return replace(subject, accelerator=new)


def _short(subject: Subject, worked: dict[str, float], contrasts: tuple[Contrast, ...]) -> tuple[str, ...]:
    deployment, window = subject.deployment(), subject.model.sliding_window
    of_prefill = bound(deployment, prompts(1, PROMPT, window=window))
    of_decode = bound(deployment, decodes(1, CONTEXT, window))
    ratio = {each.key: each.simulated for each in contrasts}
    return (
        f"An operator with fewer FLOPs for each byte than {worked['ridge']:.0f} waits for memory, with more for the "
        "arithmetic units. A decode step of one sequence does a couple of FLOPs for each byte of weights: it is bound "
        f"by {of_decode}, its floor is {format_duration(worked['decode_floor_s'])}, and it uses "
        f"{format_percent(worked['decode_mfu'])} of peak FLOP/s. A prompt of {PROMPT} tokens uses each weight {PROMPT} "
        f"times: its FLOPs at peak take {worked['prefill_ratio']:.1f} times as long as reading the weights; it is "
        f"bound by {of_prefill}.",
        "The proof is an intervention. Simulated with half the FLOP/s, prefill takes "
        f"{ratio['prefill_flop']:.2f} times as long and decode {ratio['decode_flop']:.2f} times; with half the "
        f"bandwidth {ratio['prefill_hbm']:.2f} and {ratio['decode_hbm']:.2f} times.",
    )


def _picture(subject: Subject) -> Picture:
    deployment, window = subject.deployment(), subject.model.sliding_window
    peak, bandwidth = deployment.peak_flop_per_s, deployment.accelerator.hbm_bandwidth_bytes_per_s
    cost = subject.pool().cost.start(deployment)

    def points(name: str, batches: list[Batch]) -> Series:
        done = [(spent(cost, batch), cost.step(batch).occupancy_s) for batch in batches]
        x = tuple(work.flop / work.hbm_bytes for work, _ in done)
        return Series(name, x, tuple(work.flop / seconds / TERA for work, seconds in done), "points")

    reach = (0.5, peak / bandwidth, 20 * peak / bandwidth)
    roof = Series("roof: data sheet", reach, tuple(min(peak, bandwidth * each) / TERA for each in reach))
    return Picture(
        "Roofline",
        f"Points are iterations of the simulator's cost model: prompts of {', '.join(map(str, PROMPTS))} tokens, "
        f"decode batches of {', '.join(map(str, BATCHES))} at {CONTEXT:,} of context, from left to right.",
        "FLOPs for each byte of HBM",
        "TFLOP/s",
        (
            roof,
            points("prefill", [prompts(1, each, window=window) for each in PROMPTS]),
            points("decode", [decodes(each, CONTEXT, window) for each in BATCHES]),
        ),
        log_x=True,
        log_y=True,
    )
