"""Waits, users and spare capacity by queueing theory."""

import math


def mean_wait_s(service_s: float, utilisation: float, service_cv: float = 0.0, servers: int = 1) -> float:
    """The mean wait before service of Poisson arrivals at equal servers with one queue; infinite from full load on.

    One server, exact: rho / (1 - rho) * (1 + cv**2) / 2 * service, by Pollaczek and Khinchine, where rho is the
    utilisation and cv the standard deviation of service times over their mean (M/G/1; cv = 0 is M/D/1; Kleinrock,
    "Queueing Systems" volume 1, section 5.6). c servers, approximate: rho**(sqrt(2 * (c + 1)) - 1) / (c * (1 - rho)) in
    place of the first factor (Sakasegawa, "An approximation formula L_q = ...", Annals of the Institute of Statistical
    Mathematics 29, 1977).
    """
    if utilisation >= 1:
        return math.inf
    busy: float = utilisation ** (math.sqrt(2 * (servers + 1)) - 1) / (servers * (1 - utilisation))
    return busy * (1 + service_cv**2) / 2 * service_s


def in_flight(rate_per_s: float, time_s: float) -> float:
    """How many are in a system on average: Little's law, rate times time (Little, Operations Research 9, 1961)."""
    return rate_per_s * time_s


def interactive_users(requests_per_s: float, response_s: float, think_s: float) -> float:
    """Users of a closed loop that a throughput serves, each of whom thinks between an answer and the next request.

    Little's law over users who wait and who think: N = X * (R + Z) (Denning and Buzen, "The Operational Analysis of
    Queueing Network Models", 1978).
    """
    return in_flight(requests_per_s, response_s + think_s)


def square_root_staffing(load: float, deviations: float = 2.0) -> float:
    """Servers for ``load`` of them busy on average: load + deviations * sqrt(load).

    The number busy fluctuates by the root of its mean under Poisson arrivals, so that headroom is a smaller share of a
    larger fleet (Halfin and Whitt, Operations Research 29, 1981).
    """
    return load + deviations * math.sqrt(load)
