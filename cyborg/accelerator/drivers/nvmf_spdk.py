# SPDX-License-Identifier: Apache-2.0
"""Storage that SPDK, a daemon, serves. Operators see it; it cannot be attached to guests."""

import contextlib
import itertools
import json
import socket
from collections.abc import Iterator
from typing import Any

from oslo_config import cfg

from cyborg import errors, objects
from cyborg.accelerator import driver

LONGEST_ANSWER = 16 * 1024 * 1024
PIECE = 64 * 1024
LONGEST_TEXT = 255
#: The subsystem for discovery of others. It serves no storage.
DISCOVERY = 'nqn.2014-08.org.nvmexpress.discovery'


class NvmfSpdkDriver(driver.Driver):
    """Reports block devices and NVMe-oF subsystems of SPDK as attributes of one device."""

    name = 'nvmf_spdk_driver'
    type = 'SSD'
    shows_only = True
    options = (
        cfg.StrOpt(
            'socket',
            default='/var/tmp/spdk.sock',
            help='UNIX socket of the JSON-RPC service of SPDK. The agent needs permission to write '
            'to it.',
        ),
        cfg.FloatOpt(
            'timeout', default=5.0, min=0.1, help='Seconds within which SPDK must answer.'
        ),
    )

    def discover(self) -> Iterator[objects.Device]:
        path = self.conf.nvmf_spdk_driver.socket
        try:
            connection = self._connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return  # SPDK does not run
        except OSError as error:
            raise self._failure(f'{path} cannot be reached: {error.strerror or error}') from error
        with connection:
            numbers = itertools.count(1)
            version, bdevs, subsystems = (
                self._ask(connection, method, next(numbers))
                for method in ('spdk_get_version', 'bdev_get_bdevs', 'nvmf_get_subsystems')
            )
        if not isinstance(version, dict):
            raise self._failure('it does not report its version')
        yield objects.Device(
            key='spdk',
            type=self.type,
            vendor='SPDK',
            model=_text(version.get('version')),
            driver_name=self.name,
            control_paths=[objects.ControlPath(type='SOCKET', info={'path': path})],
            deployables=[
                objects.Deployable(
                    name='spdk',
                    driver_name=self.name,
                    num_accelerators=0,
                    attributes=[*_bdevs(bdevs), *_subsystems(subsystems)],
                )
            ],
        )

    def _connect(self, path: str) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(self.conf.nvmf_spdk_driver.timeout)
        try:
            connection.connect(path)
        except BaseException:
            connection.close()
            raise
        return connection

    def _ask(self, connection: socket.socket, method: str, number: int) -> Any:
        """Send one request and return the result. Requests and answers are JSON objects without
        any separator."""
        question = {'jsonrpc': '2.0', 'id': number, 'method': method}
        try:
            connection.sendall(json.dumps(question).encode())
            answer = self._answer(connection)
        except OSError as error:
            raise self._failure(f'{method} returned no answer: {error}') from error
        if not isinstance(answer, dict) or answer.get('id') != number:
            raise self._failure(
                f'{method} returned something that is not an answer to this request'
            )
        if 'error' in answer:
            if _is_unknown(answer['error']):
                return []  # SPDK was built without this method
            raise self._failure(f'{method} fails: {_text(answer["error"])}')
        return answer.get('result')

    def _answer(self, connection: socket.socket) -> Any:
        received = b''
        while len(received) < LONGEST_ANSWER:
            piece = connection.recv(PIECE)
            if not piece:
                raise ConnectionResetError('the connection was closed')
            received += piece
            with contextlib.suppress(ValueError):  # the answer is not complete yet
                return json.loads(received)
        raise self._failure('its answer is too long')

    def _failure(self, why: str) -> errors.DriverFailed:
        return errors.DriverFailed(name=self.name, why=f'{why}.')


def _is_unknown(error: Any) -> bool:
    return isinstance(error, dict) and error.get('code') == -32601


def _text(value: Any) -> str:
    return str(value)[:LONGEST_TEXT]


def _objects(answer: Any) -> list[dict[str, Any]]:
    return [each for each in answer if isinstance(each, dict)] if isinstance(answer, list) else []


def _bdevs(answer: Any) -> Iterator[objects.Attribute]:
    for number, bdev in enumerate(_objects(answer)):
        facts = {
            key: bdev[key]
            for key in ('product_name', 'uuid', 'block_size', 'num_blocks')
            if bdev.get(key) is not None
        }
        yield _attribute(f'bdev{number}', bdev.get('name'), facts)


def _subsystems(answer: Any) -> Iterator[objects.Attribute]:
    found = (each for each in _objects(answer) if each.get('nqn') != DISCOVERY)
    for number, subsystem in enumerate(found):
        facts = {
            f'namespace{each.get("nsid")}': each.get('bdev_name') or each.get('name')
            for each in _objects(subsystem.get('namespaces'))
        }
        for place, each in enumerate(_objects(subsystem.get('listen_addresses'))):
            facts[f'listener{place}'] = ' '.join(
                _text(each.get(key)) for key in ('trtype', 'traddr', 'trsvcid')
            )
        yield _attribute(f'subsystem{number}', subsystem.get('nqn'), facts)


def _attribute(key: str, value: Any, facts: dict[str, Any]) -> objects.Attribute:
    return objects.Attribute(
        key=key,
        value=_text(value),
        children=[
            objects.Attribute(key=_text(name), value=_text(fact)) for name, fact in facts.items()
        ],
    )
