# SPDX-License-Identifier: Apache-2.0
"""Measures memory and time for fetching an image: ``python -m tools.bench.image_fetch``."""

import argparse
import hashlib
import multiprocessing
import multiprocessing.connection
import pathlib
import resource
import tempfile
import time
from collections.abc import Sequence

from oslo_config import cfg

from cyborg import conf as options
from cyborg.agent.bitstreams import Bitstreams, WantedImage
from cyborg.clients.glance import Glance
from cyborg.sim import glance as sim

MIB = 1024 * 1024
SIZES = (1, 64, 1024)
SETTINGS = """\
[DEFAULT]
state_path = {directory}
[agent]
bitstream_cache_size = {cache}
[glance]
auth_type = none
endpoint = {url}
"""


def serve(sizes: list[int], connection: multiprocessing.connection.Connection) -> None:
    """Run a fake Glance in a process of its own, so that its memory does not count."""
    glance = sim.Glance()
    connection.send(
        (
            glance.url,
            [
                glance.add(
                    data := bytes(size * MIB),
                    os_hash_algo='sha512',
                    os_hash_value=hashlib.sha512(data).hexdigest(),
                )
                for size in sizes
            ],
        )
    )
    glance.start()
    connection.recv()
    glance.stop()


def peak() -> float:
    """Return the peak resident memory of this process in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(bitstreams: Bitstreams, size: int, image: str, source: str) -> None:
    before, start, cpu = peak(), time.monotonic(), time.process_time()
    with bitstreams.fetched(WantedImage({'bitstream_id': image})):
        seconds, cpu = time.monotonic() - start, time.process_time() - cpu
    print(
        f'{size:5} MiB from {source:9} {seconds:6.2f} s (CPU {cpu:6.2f} s), '
        f'peak memory {peak():6.1f} MiB ({peak() - before:+.1f})'
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog='python -m tools.bench.image_fetch', description=__doc__)
    parser.add_argument(
        'sizes', metavar='MIB', type=int, nargs='*', default=SIZES, help='default: 1 64 1024'
    )
    sizes = list(parser.parse_args(arguments).sizes)
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context('spawn').Process(target=serve, args=(sizes, there))
    server.start()
    url, images = here.recv()
    with tempfile.TemporaryDirectory() as name:
        file = pathlib.Path(name, 'cyborg.conf')
        file.write_text(SETTINGS.format(directory=name, cache=2 * sum(sizes), url=url))
        conf = cfg.ConfigOpts()
        options.register(conf)
        conf(['--config-file', str(file)])
        bitstreams = Bitstreams(conf, 'compute1', Glance.connect(conf))
        for size, image in zip(sizes, images, strict=True):
            for source in ('Glance', 'the cache'):
                measure(bitstreams, size, image, source)
    here.send(None)
    server.join()


if __name__ == '__main__':
    main()
