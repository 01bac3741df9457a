# SPDX-License-Identifier: Apache-2.0
"""HTTP clients that keep their connections: a child process of the benchmark.

It uses only the standard library, so that the clients cost little CPU time.
"""

import http.client
import json
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from tools.bench.children import serve

Ask = Callable[..., Any]
#: step -> the seconds of each repetition
Samples = dict[str, list[float]]


class Timer:
    """A connection that records how long each step takes."""

    def __init__(self, address: list[Any], headers: dict[str, str]) -> None:
        host, port = address
        self._connection = http.client.HTTPConnection(host, port, timeout=120)
        self._headers = headers | {'Content-Type': 'application/json'}
        self.samples: Samples = {}

    def ask(self, step: str, method: str, path: str, body: Any = None) -> Any:
        """Send a request, record its time for the step, and return the document."""
        data = None if body is None else json.dumps(body)
        began = time.perf_counter()
        self._connection.request(method, path, data, self._headers)
        response = self._connection.getresponse()
        text = response.read()
        self.note(step, time.perf_counter() - began)
        if response.status >= 400:
            raise RuntimeError(f'{method} {path}: {response.status} {text[:500]!r}')
        return json.loads(text) if text else None

    def note(self, step: str, seconds: float) -> None:
        self.samples.setdefault(step, []).append(seconds)

    def forget(self) -> None:
        """Discard the times of the warm-up."""
        self.samples = {}

    def close(self) -> None:
        self._connection.close()


def life(
    timer: Timer, number: int, profile: str, host: str, providers: list[str], prefix: str = '/v2'
) -> None:
    """Create, bind, read and delete a request, as Nova does."""
    instance, began = str(uuid.uuid4()), time.perf_counter()
    path = f'{prefix}/accelerator_requests'
    [arq] = timer.ask('create', 'POST', path, {'device_profile_name': profile})['arqs']
    timer.ask(
        'bind',
        'PATCH',
        path,
        {
            arq['uuid']: [
                {'op': 'add', 'path': '/hostname', 'value': host},
                {
                    'op': 'add',
                    'path': '/device_rp_uuid',
                    'value': providers[number % len(providers)],
                },
                {'op': 'add', 'path': '/instance_uuid', 'value': instance},
            ]
        },
    )
    [bound] = timer.ask('read', 'GET', f'{path}?instance={instance}')['arqs']
    if bound['state'] != 'Bound':
        raise RuntimeError(f'{arq["uuid"]} is {bound["state"]}')
    timer.ask('delete', 'DELETE', f'{path}?instance={instance}')
    timer.note('life', time.perf_counter() - began)


def once(timer: Timer, number: int, path: str) -> None:
    """Read one document."""
    timer.ask('once', 'GET', path)


SCENARIOS = {'life': life, 'once': once}


def run(
    scenario: str,
    address: list[Any],
    headers: dict[str, str],
    clients: int,
    first: int,
    start: float,
    seconds: float,
    **facts: Any,
) -> dict[str, Any]:
    """Run clients, numbered from ``first``, which repeat a scenario from ``start`` on.

    Returns the seconds of each step, and the number of repetitions per second.
    """
    play = SCENARIOS[scenario]
    timers = [Timer(address, headers) for _ in range(clients)]
    failures: list[BaseException] = []
    rates: list[float] = []

    def work(number: int, timer: Timer) -> None:
        try:
            play(timer, number, **facts)
            timer.forget()
            time.sleep(max(0.0, start - time.time()))
            count, began = 0, time.perf_counter()
            while (now := time.perf_counter()) < began + seconds:
                play(timer, number, **facts)
                count += 1
            rates.append(count / (now - began))
        except Exception as error:
            failures.append(error)
        finally:
            timer.close()

    threads = [
        threading.Thread(target=work, args=(first + number, timer))
        for number, timer in enumerate(timers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    merged: Samples = {}
    for timer in timers:
        for step, samples in timer.samples.items():
            merged.setdefault(step, []).extend(samples)
    return {'samples': merged, 'rate': sum(rates)}


if __name__ == '__main__':
    serve({'run': run})
