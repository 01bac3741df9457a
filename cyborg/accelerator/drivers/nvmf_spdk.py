# SPDX-License-Identifier: Apache-2.0
"""Storage served by SPDK, a daemon: shown with what it serves. Nothing of it can be attached."""

import contextlib
import itertools
import json
import socket
from collections.abc import Iterator
from typing import Any

from cyborg import errors, objects
from cyborg.accelerator import driver

LONGEST_ANSWER = 16 * 1024 * 1024
PIECE = 64 * 1024
LONGEST_TEXT = 255
#: The subsystem through which others are found serves nothing.
DISCOVERY = 'nqn.2014-08.org.nvmexpress.discovery'


class NvmfSpdkDriver(driver.Driver):
    """Its block devices and NVMe-oF subsystems, as attributes of one device."""

    name = 'nvmf_spdk_driver'
    type = 'SSD'
    shows_only = True

    def discover(self) -> Iterator[objects.Device]:
        path = self.conf.nvmf_spdk_driver.socket
        try:
            connection = self._connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return  # it does not run
        except OSError as error:
            raise self._failure(f'{path} cannot be reached: {error.strerror or error}') from error
        with connection:
            numbers = itertools.count(1)
            version, bdevs, subsystems = (
                self._ask(connection, method, next(numbers)) for method in (
                    'spdk_get_version', 'bdev_get_bdevs', 'nvmf_get_subsystems'))
        if not isinstance(version, dict):
            raise self._failure('it does not tell its version')
        yield objects.Device(
            key='spdk', type=self.type, vendor='SPDK', model=_text(version.get('version')),
            driver_name=self.name,
            control_paths=[objects.ControlPath(type='SOCKET', info={'path': path})],
            deployables=[objects.Deployable(
                name='spdk', driver_name=self.name, num_accelerators=0,
                attributes=[*_bdevs(bdevs), *_subsystems(subsystems)])])

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
        """One question, one answer: objects of JSON, one after the other, nothing in between."""
        question = {'jsonrpc': '2.0', 'id': number, 'method': method}
        try:
            connection.sendall(json.dumps(question).encode())
            answer = self._answer(connection)
        except OSError as error:
            raise self._failure(f'{method} is not answered: {error}') from error
        if not isinstance(answer, dict) or answer.get('id') != number:
            raise self._failure(f'{method} is answered with something else')
        if 'error' in answer:
            if _is_unknown(answer['error']):
                return []  # built without it
            raise self._failure(f'{method} fails: {_text(answer["error"])}')
        return answer.get('result')

    def _answer(self, connection: socket.socket) -> Any:
        received = b''
        while len(received) < LONGEST_ANSWER:
            piece = connection.recv(PIECE)
            if not piece:
                raise ConnectionResetError('the connection was closed')
            received += piece
            with contextlib.suppress(ValueError):  # not all of it is there
                return json.loads(received)
        raise self._failure('its answer does not end')

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
        facts = {key: bdev[key] for key in ('product_name', 'uuid', 'block_size', 'num_blocks')
                 if bdev.get(key) is not None}
        yield _attribute(f'bdev{number}', bdev.get('name'), facts)


def _subsystems(answer: Any) -> Iterator[objects.Attribute]:
    found = (each for each in _objects(answer) if each.get('nqn') != DISCOVERY)
    for number, subsystem in enumerate(found):
        facts = {f'namespace{each.get("nsid")}': each.get('bdev_name') or each.get('name')
                 for each in _objects(subsystem.get('namespaces'))}
        for place, each in enumerate(_objects(subsystem.get('listen_addresses'))):
            facts[f'listener{place}'] = ' '.join(
                _text(each.get(key)) for key in ('trtype', 'traddr', 'trsvcid'))
        yield _attribute(f'subsystem{number}', subsystem.get('nqn'), facts)


def _attribute(key: str, value: Any, facts: dict[str, Any]) -> objects.Attribute:
    return objects.Attribute(key=key, value=_text(value), children=[
        objects.Attribute(key=_text(name), value=_text(fact)) for name, fact in facts.items()])
