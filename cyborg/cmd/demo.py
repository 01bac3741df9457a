# SPDX-License-Identifier: Apache-2.0
"""The demo: follows one accelerator request from discovery to release, and checks each step."""

import time
import uuid
from collections.abc import Callable
from typing import Any, TypeVar

import requests

from cyborg.accelerator import sysfs
from cyborg.clients import wsgi
from cyborg.sim import nova as sim_nova
from cyborg.standalone import Standalone

T = TypeVar('T')

API = 'http://cyborg.local'
PATIENCE = 120
SPARE, SPARE_ADDRESS = 't4', '0000:d8:00.0'
PROFILE = {
    'name': 'render-and-compress',
    'description': 'Two virtual GPUs and a QuickAssist function',
    'groups': [
        {
            'resources:VGPU': '2',
            'trait:CUSTOM_NVIDIA_1EB8_T4_2Q': 'required',
            'trait:OWNER_CYBORG': 'required',
        },
        {'resources:CUSTOM_QAT': '1', 'trait:OWNER_CYBORG': 'required'},
    ],
}


class StepFailed(Exception):
    """A step of the demo failed."""


def require(holds: object, sentence: str) -> None:
    if not holds:
        raise StepFailed(sentence)


class Demo:
    """Performs the steps and prints them."""

    def __init__(self, standalone: Standalone, host: Any, nova: sim_nova.Nova) -> None:
        self._standalone = standalone
        self._host = host
        self._nova = nova
        self._session = requests.Session()
        wsgi.mount(self._session, API, standalone.api)
        self._step = 0

    def run(self) -> int:
        """Run all steps; returns 1 after the first that fails, with a message."""
        try:
            self.discovery()
            rps = self.providers()
            arqs = self.request()
            self.bind(arqs, rps)
            self.hot_plug()
            self.release(arqs)
        except StepFailed as failure:
            print(f'\nThis step failed: {failure}')
            return 1
        print('\nEverything held.')
        return 0

    # -- the steps -------------------------------------------------------------------------

    def discovery(self) -> None:
        self._title('A host starts, and its agent discovers its devices')
        agent = self._standalone.agents[self._host.name]
        require(agent.inventory.is_ready.wait(PATIENCE), 'the agent published its devices')
        devices = self._get('/devices')['devices']
        for device in devices:
            print(f'  {device["type"]:5} {device["vendor"]}  {device["model"]}')
        require(
            {device['type'] for device in devices} == {'GPU', 'FPGA', 'QAT', 'HPTS'},
            'GPUs, an FPGA, a QuickAssist and a time card were found',
        )

    def providers(self) -> dict[str, str]:
        self._title('Placement knows them as resource providers')
        tree = self._tree()
        self._draw(tree, self._host.name)
        found = {each['name']: each['uuid'] for each in tree}
        regions = [name for name in found if 'region' in name]
        require(len(regions) == 2, 'the FPGA has two regions of its own')
        return found

    def request(self) -> list[dict[str, Any]]:
        self._title('An operator publishes a device profile; a server asks for it')
        self._send('POST', '/device_profiles', [PROFILE], 201)
        print(f'  profile {PROFILE["name"]}: {PROFILE["description"]}')
        arqs: list[dict[str, Any]] = self._send(
            'POST', '/accelerator_requests', {'device_profile_name': PROFILE['name']}, 201
        )['arqs']
        for arq in arqs:
            print(
                f'  request {arq["uuid"]} for group {arq["device_profile_group_id"]}: '
                f'{arq["state"]}'
            )
        require(len(arqs) == 3, 'there is one request per unit')
        return arqs

    def bind(self, arqs: list[dict[str, Any]], rps: dict[str, str]) -> None:
        self._title('Nova has chosen the host, and binds the requests')
        self._instance = str(uuid.uuid4())
        chosen = {
            0: rps[f'{self._host.name}_0000:3b:00.0'],
            1: rps[f'{self._host.name}_0000:6b:00.0'],
        }
        self._send(
            'PATCH',
            '/accelerator_requests',
            {
                arq['uuid']: [
                    {'op': 'add', 'path': '/hostname', 'value': self._host.name},
                    {
                        'op': 'add',
                        'path': '/device_rp_uuid',
                        'value': chosen[arq['device_profile_group_id']],
                    },
                    {'op': 'add', 'path': '/instance_uuid', 'value': self._instance},
                ]
                for arq in arqs
            },
            202,
        )
        bound = self._get(f'/accelerator_requests?instance={self._instance}')['arqs']
        for arq in bound:
            info = arq['attach_handle_info']
            address = '{domain}:{bus}:{device}.{function}'.format(**info)
            what = info.get('asked_type', 'virtual function')
            print(f'  {arq["state"]}: {arq["attach_handle_type"]:4} {address} {what}')
        require({arq['state'] for arq in bound} == {'Bound'}, 'all three requests are bound')
        print(f'  mediated devices on the host: {len(self._mdevs())}')
        require(len(self._mdevs()) == 2, 'the agent created two mediated devices')
        events = self._nova.wait_for_events(3, PATIENCE)
        for event in events:
            print(f'  Nova received: {event["name"]} {event["status"]} {event["tag"]}')
        require(
            sorted(event['tag'] for event in events) == sorted(arq['uuid'] for arq in arqs),
            'Nova received one event about each request',
        )

    def hot_plug(self) -> None:
        self._title('Somebody plugs in one more card')
        before = time.monotonic()
        self._host.cards.plug_in_spare(SPARE)
        name = f'{self._host.name}_{SPARE_ADDRESS}'
        new = self._eventually(
            'Placement shows the new card',
            lambda: next(
                (each for each in self._tree() if each['name'] == name and each['inventory']), None
            ),
        )
        print(f'  {time.monotonic() - before:.2f} s later Placement offers {_offer(new)} of {name}')

    def release(self, arqs: list[dict[str, Any]]) -> None:
        self._title('The server is deleted')
        self._send('DELETE', f'/accelerator_requests?instance={self._instance}', None, 204)
        left = self._get('/accelerator_requests')['arqs']
        require(not left, 'no request is left')
        print(f'  {len(arqs)} requests are gone')
        self._eventually('the agent removes the mediated devices', lambda: not self._mdevs())
        print('  the mediated devices are gone from the host')

    # -- tools -------------------------------------------------------------------------------

    def _title(self, text: str) -> None:
        self._step += 1
        print(f'\n{self._step}. {text}')

    def _send(self, method: str, path: str, body: Any, expected: int) -> Any:
        response = self._session.request(method, f'{API}/v2{path}', json=body)
        require(
            response.status_code == expected,
            f'{method} {path} answers {expected}; it answered {response.status_code}: '
            f'{response.text}',
        )
        return response.json() if response.content else None

    def _get(self, path: str) -> Any:
        return self._send('GET', path, None, 200)

    def _eventually(self, what: str, happens: Callable[[], T | None]) -> T:
        end = time.monotonic() + PATIENCE
        while not (result := happens()):
            require(time.monotonic() < end, what)
            time.sleep(0.02)
        return result

    def _mdevs(self) -> list[sysfs.Node]:
        made: sysfs.Node = self._host.sysfs / 'bus/mdev/devices'
        return made.children()

    def _tree(self) -> list[dict[str, Any]]:
        """Return the providers of the host, each with its inventory and traits."""

        def ask(path: str) -> Any:
            return self._standalone.placement.get(
                path, headers={'OpenStack-API-Version': 'placement 1.39'}
            ).json()

        [root] = ask(f'/resource_providers?name={self._host.name}')['resource_providers']
        tree: list[dict[str, Any]] = ask(f'/resource_providers?in_tree={root["uuid"]}')[
            'resource_providers'
        ]
        for each in tree:
            path = f'/resource_providers/{each["uuid"]}'
            each['inventory'] = ask(f'{path}/inventories')['inventories']
            each['traits'] = ask(f'{path}/traits')['traits']
        return tree

    def _draw(self, tree: list[dict[str, Any]], root: str) -> None:
        names = {each['uuid']: each['name'] for each in tree}

        def branch(parent: str, indent: str) -> None:
            children = sorted(
                (each for each in tree if names.get(each['parent_provider_uuid']) == parent),
                key=lambda each: each['name'],
            )
            for each in children:
                is_last = each is children[-1]
                print(f'  {indent}{"└─" if is_last else "├─"} {each["name"]}  {_offer(each)}')
                inner = indent + ('   ' if is_last else '│  ')
                for trait in each['traits']:
                    if trait != 'OWNER_CYBORG':
                        print(f'  {inner}   {trait}')
                branch(each['name'], inner)

        print(f'  {root}')
        branch(root, '')


def _offer(provider: dict[str, Any]) -> str:
    return ', '.join(
        f'{inventory["total"]} {name}' for name, inventory in provider['inventory'].items()
    )
