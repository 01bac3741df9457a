# SPDX-License-Identifier: Apache-2.0
"""The control interface: what a person does with simulated hosts and simulated servers."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import jsonschema

from cyborg import errors
from cyborg.accelerator import driver, pci
from cyborg.sim import Host, catalogue
from cyborg.sim.conformance import default_hosts
from cyborg.sim.resets import Illness
from cyborg.standalone import Standalone
from cyborg.workbench.servers import BuildFailed, Servers

TEXT = {'type': 'string', 'minLength': 1, 'maxLength': 255}
#: operation -> the arguments that it takes
ARGUMENTS: dict[str, dict[str, Any]] = {
    'plug': {'hostname': TEXT, 'card': TEXT, 'at': TEXT},
    'pull': {'hostname': TEXT, 'at': TEXT},
    'fault': {'hostname': TEXT, 'at': TEXT, 'kind': {'enum': [*Illness, 'none']}},
    'reboot': {'hostname': TEXT},
    'boot': {'name': TEXT, 'profile': TEXT, 'hostname': TEXT},
    'delete': {'server': TEXT},
}
NEEDED = {
    'plug': ['card'],
    'pull': ['at'],
    'fault': ['at'],
    'boot': ['profile'],
    'delete': ['server'],
}


class SimulatedHost(Protocol):
    """A host of the standalone whose cards can be changed."""

    name: str
    drivers: Sequence[str]
    cards: Host


class Control:
    """Performs one operation at a time, and says in a sentence what it did."""

    def __init__(self, standalone: Standalone, hosts: Mapping[str, Any], servers: Servers) -> None:
        self._standalone = standalone
        self._hosts: Mapping[str, SimulatedHost] = hosts
        self._servers = servers
        self._models = {name: _known_models(standalone, host) for name, host in hosts.items()}
        self._lock = threading.Lock()

    def show(self) -> dict[str, Any]:
        """Return the hosts with their slots, the cards that can be plugged in, and the servers."""
        return {
            'hosts': [self._shown(host) for host in self._hosts.values()],
            'servers': [vars(server) for server in self._servers.all()],
        }

    def perform(self, operation: str, arguments: Any) -> dict[str, Any]:
        """Perform an operation; returns a sentence, and the server for ``boot``. Raises a
        CyborgError with the way out if that is impossible."""
        if operation not in ARGUMENTS:
            raise errors.NotFound(
                f'There is no operation {operation}. There are {", ".join(sorted(ARGUMENTS))}.'
            )
        _check(operation, arguments)
        verb: Callable[..., dict[str, Any]] = getattr(self, operation)
        try:
            if operation in ('boot', 'delete'):  # these may wait for a host
                return verb(**arguments)
            with self._lock:
                return verb(**arguments)
        except BuildFailed as error:
            raise errors.Conflict(str(error)) from error
        except ValueError as error:
            raise errors.Conflict(f'{error}.') from error

    # -- the operations --------------------------------------------------------------------

    def plug(self, card: str, at: str | None = None, hostname: str | None = None) -> dict[str, Any]:
        """Plug in a spare card by its name, or a card of the catalogue by its PCI id."""
        host = self._host(hostname)
        if card in host.cards.spares:
            facts = host.cards.spares[card] | ({'at': at} if at else {})
        elif card in catalogue.models():
            facts = {'model': card, 'at': at or self._free_slot(host)}
        else:
            known = sorted([*host.cards.spares, *catalogue.models()])
            raise errors.NotFound(f'There is no card {card}. There are {", ".join(known)}.')
        host.cards.plug_in(**facts)
        name = host.cards.cards[facts['at']]
        return _done(f'{name} is in slot {facts["at"]} of {host.name}.', at=facts['at'])

    def pull(self, at: str, hostname: str | None = None) -> dict[str, Any]:
        host = self._host(hostname)
        name = host.cards.cards.get(at)
        host.cards.pull_out(at)
        return _done(f'{name} is no longer in slot {at} of {host.name}.')

    def fault(
        self, at: str, kind: str = Illness.ERRORS, hostname: str | None = None
    ) -> dict[str, Any]:
        host = self._host(hostname)
        if kind == 'none':
            host.cards.heal(at)
            return _done(f'{host.cards.cards[at]} at {at} of {host.name} has no fault any more.')
        host.cards.make_ill(at, Illness(kind))
        what = 'had a fatal PCI error' if kind == Illness.ERRORS else 'no longer answers'
        return _done(f'{host.cards.cards[at]} at {at} of {host.name} {what}.')

    def reboot(self, hostname: str | None = None) -> dict[str, Any]:
        """Stop the agent, restart the kernel of the host, and start the agent again."""
        host = self._host(hostname)
        self._standalone.remove_host(host.name)
        try:
            host.cards.reboot()
        finally:
            self._standalone.add_host(host)  # type: ignore[arg-type]
        return _done(f'{host.name} was rebooted.')

    def boot(
        self, profile: str, name: str | None = None, hostname: str | None = None
    ) -> dict[str, Any]:
        server = self._servers.boot(name, profile, hostname)
        if server.fault:
            return _done(f'{server.name} is in ERROR: {server.fault}', server=vars(server))
        return _done(f'{server.name} runs on {server.hostname}.', server=vars(server))

    def delete(self, server: str) -> dict[str, Any]:
        self._servers.delete(server)
        return _done(f'Server {server} is deleted.')

    # -- hosts -----------------------------------------------------------------------------

    def _host(self, name: str | None) -> SimulatedHost:
        if name is None and len(self._hosts) == 1:
            return next(iter(self._hosts.values()))
        if name is not None and name in self._hosts:
            return self._hosts[name]
        problem = f'There is no host {name}.' if name else 'Name a host.'
        raise errors.NotFound(f'{problem} There are {", ".join(self._hosts)}.')

    def _free_slot(self, host: SimulatedHost) -> str:
        buses = {int(address.split(':')[1], 16) for address in host.cards.slots}
        return next(
            slot
            for slot in default_hosts.slots()
            # a card has a bus, the one of its bridge, and may have one for virtual functions
            if not {int(slot.split(':')[1], 16) + step for step in (-1, 0, 1)} & buses
        )

    def _shown(self, host: SimulatedHost) -> dict[str, Any]:
        spares = {
            name: {'at': facts['at'], 'name': catalogue.models().get(facts.get('model', ''), name)}
            for name, facts in host.cards.spares.items()
            if facts['at'] not in host.cards.slots
        }
        return {
            'hostname': host.name,
            'cards': [
                {'at': at, 'name': name, 'ill': host.cards.ill.get(at)}
                for at, name in sorted(host.cards.cards.items())
            ],
            'spares': spares,
            'models': self._models[host.name],
        }


def _known_models(standalone: Standalone, host: SimulatedHost) -> dict[str, str]:
    """Return the cards of the catalogue that the drivers of a host know."""
    known = [
        model
        for each in driver.load(list(host.drivers), standalone.conf, host.cards.sysfs)
        if isinstance(each, pci.Driver)
        for model in each.catalogue
    ]
    return {
        model: name
        for model, name in catalogue.models().items()
        if any(default_hosts.fits(each, model) for each in known)
    }


def _done(sentence: str, **more: Any) -> dict[str, Any]:
    return {'sentence': sentence} | more


def _check(operation: str, arguments: Any) -> None:
    schema = {
        'type': 'object',
        'properties': ARGUMENTS[operation],
        'required': NEEDED.get(operation, []),
        'additionalProperties': False,
    }
    error = jsonschema.exceptions.best_match(
        jsonschema.Draft202012Validator(schema).iter_errors(arguments)
    )
    if error is not None:
        place = '.'.join(map(str, error.absolute_path))
        raise errors.BadRequest(f'{place or operation}: {error.message}.')
