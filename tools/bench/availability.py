# SPDX-License-Identifier: Apache-2.0
"""Measures how long the availability of a device profile takes, with few and with many hosts."""

import time
from collections.abc import Iterator

from tools.bench.figures import Better, Figure, percentile
from tools.bench.scale import Scale
from tools.bench.sites import Site
from tools.bench.stored_hosts import RESOURCE_CLASS, TRAIT, StoredHosts
from tools.process_usage import cpu, resident

NAME = 'availability'
GROUP = {f'resources:{RESOURCE_CLASS}': '1', f'trait:{TRAIT}': 'required'}
#: name of a profile -> its groups
PROFILES = {
    'one': [GROUP],
    'two': [GROUP, {f'resources:{RESOURCE_CLASS}': '2'}],
}


def measure(site: Site, scale: Scale) -> Iterator[Figure]:
    """Ask for the availability of profiles with one and with two groups, as an administrator, who
    sees each host."""
    with StoredHosts(site.database, site.placement_database) as hosts:
        for name, groups in PROFILES.items():
            site.ask('POST', '/device_profiles', [{'name': f'hosts-{name}', 'groups': groups}])
        for count in scale.hosts:
            hosts.grow(count)
            for name in PROFILES:
                yield from _availability(site, scale, name, {'hosts': count, 'groups': name})
            yield from _memory(site, count)
        for name in PROFILES:
            site.ask('DELETE', f'/device_profiles/hosts-{name}')


def _availability(
    site: Site, scale: Scale, name: str, at: dict[str, int | str]
) -> Iterator[Figure]:
    path = f'/device_profiles/hosts-{name}/availability'
    shown = site.ask('GET', path)  # also fills the caches
    if shown['hosts_fitting'] < 0.6 * int(at['hosts']):
        raise ValueError(f'{path} does not see the stored hosts: {shown["reasons"]}')
    processes = [
        pid for service, pids in site.processes.items() if service != 'agent' for pid in pids
    ]
    repetitions, samples = 2 * scale.rounds, []
    before, served = cpu(processes), site.placement_cpu()
    for _ in range(repetitions):
        began = time.perf_counter()
        site.ask('GET', path)
        samples.append(time.perf_counter() - began)
    served = site.placement_cpu() - served
    spent = cpu(processes) - before - (served if site.has_placement_within else 0)
    yield Figure(NAME, 'CPU', 'ms', 1000 * spent / repetitions, at)
    yield Figure(NAME, 'CPU Placement', 'ms', 1000 * served / repetitions, at, Better.NONE)
    what = 'p50 in one process' if site.has_placement_within else 'p50'
    yield Figure(NAME, what, 'ms', 1000 * percentile(samples, 50), at)


def _memory(site: Site, hosts: int) -> Iterator[Figure]:
    for service, pids in site.processes.items():
        if service != 'agent':
            largest = max(resident([pid]) for pid in pids)
            at = {'hosts': hosts, 'service': service}
            yield Figure(NAME, 'memory of the largest process', 'MiB', largest, at)
