# SPDX-License-Identifier: Apache-2.0
"""The real Placement, in process, with an eye on every call."""

import shutil
import threading
import uuid

import pytest
import requests
from oslo_config import cfg
from oslo_context import context

from cyborg import conf as options
from cyborg import objects
from cyborg.clients import embedded_placement, keystone, placement, wsgi

URL = 'http://placement.local'
ROOT = 'compute1'
CONF = """
[placement]
auth_type = admin_token
endpoint = http://placement.local/
token = admin
"""


class Service:
    """Placement as others see it: Nova, an operator, a broken network."""

    def __init__(self, application, conf):
        self.application = application
        self.conf = conf
        self.calls = []
        #: called with (method, path) before a request of a client under test is served
        self.before = lambda method, path: None
        #: the same, after it was served and before the client has the answer
        self.after = lambda method, path: None
        self.admin = keystone.connect(conf, 'placement', self._session(application))
        self.root = self.make(ROOT)

    def _session(self, application):
        session = requests.Session()
        wsgi.mount(session, URL, application)
        return session

    def _watched(self, environ, start_response):
        call = environ['REQUEST_METHOD'], environ['PATH_INFO']
        self.calls.append(call)
        self.before(*call)
        answer = self.application(environ, start_response)
        self.after(*call)
        return answer

    def client(self):
        """A new agent's client: it knows nothing yet."""
        return placement.Placement(
            keystone.connect(self.conf, 'placement', self._session(self._watched))
        )

    def ask(self, method, path, **kwargs):
        response = self.admin.request(
            path, method, headers={'OpenStack-API-Version': 'placement 1.39'}, **kwargs
        )
        return response.json() if response.content else None

    def make(self, name, parent=None, traits=(), inventories=None):
        made = self.ask(
            'POST',
            '/resource_providers',
            json={'name': name} | ({'parent_provider_uuid': parent} if parent else {}),
        )['uuid']
        if traits:
            self.ask(
                'PUT',
                f'/resource_providers/{made}/traits',
                json={'resource_provider_generation': 0, 'traits': list(traits)},
            )
        if inventories:
            self.ask(
                'PUT',
                f'/resource_providers/{made}/inventories',
                json={
                    'resource_provider_generation': self.row(made)['generation'],
                    'inventories': {name: {'total': total} for name, total in inventories.items()},
                },
            )
        return made

    def delete(self, provider):
        self.ask('DELETE', f'/resource_providers/{provider}')

    def row(self, provider):
        return self.ask('GET', f'/resource_providers/{provider}')

    def allocate(self, provider, resource_class, amount=1):
        """What Nova does when a server lands here."""
        consumer = str(uuid.uuid4())
        self.ask(
            'PUT',
            f'/allocations/{consumer}',
            json={
                'allocations': {provider: {'resources': {resource_class: amount}}},
                'project_id': 'project',
                'user_id': 'user',
                'consumer_generation': None,
                'consumer_type': 'INSTANCE',
            },
        )
        return consumer

    def release(self, consumer):
        self.ask('DELETE', f'/allocations/{consumer}')

    def touch(self, provider):
        """Change something harmless, and the generation with it."""
        self.release(self.allocate(provider, *self.inventories(provider)))

    def traits(self, provider):
        return set(self.ask('GET', f'/resource_providers/{provider}/traits')['traits'])

    def inventories(self, provider):
        return self.ask('GET', f'/resource_providers/{provider}/inventories')['inventories']

    def is_empty(self, provider):
        """Is it there, ours, and with nothing to offer?"""
        return self.traits(provider) == {'OWNER_CYBORG'} and self.inventories(provider) == {}

    def rows(self):
        found = self.ask('GET', f'/resource_providers?in_tree={self.root}')['resource_providers']
        return {row['name']: row for row in found if row['uuid'] != self.root}

    def names(self):
        return set(self.rows())

    def shape(self):
        """name -> (parent's name, traits, inventories) of all below the compute node."""
        rows = self.rows()
        names = {self.root: ROOT} | {row['uuid']: name for name, row in rows.items()}
        return {
            name: (
                names[row['parent_provider_uuid']],
                self.traits(row['uuid']),
                self.inventories(row['uuid']),
            )
            for name, row in rows.items()
        }


@pytest.fixture(scope='session')
def empty_database(tmp_path_factory):
    """A schema is half a second's work: it is done once and copied."""
    path = tmp_path_factory.mktemp('placement') / 'empty.sqlite'
    embedded_placement.load(path)
    return path


@pytest.fixture(autouse=True)
def no_request_context(monkeypatch):
    """oslo.context keeps one by thread, which would reach the next test."""
    monkeypatch.setattr(context, '_request_store', threading.local())


@pytest.fixture
def conf(tmp_path):
    conf = cfg.ConfigOpts()
    options.register(conf)
    (tmp_path / 'cyborg.conf').write_text(CONF)
    conf(['--config-file', str(tmp_path / 'cyborg.conf')])
    return conf


@pytest.fixture
def service(tmp_path, empty_database, conf):
    shutil.copy(empty_database, tmp_path / 'placement.sqlite')
    return Service(embedded_placement.load(tmp_path / 'placement.sqlite'), conf)


@pytest.fixture
def client(service):
    return service.client()


@pytest.fixture
def wanted():
    """Makes providers as the conductor would: uuids that follow from names."""

    def make(name, parent=None, resource_class='FPGA', total=1, reserved=0, traits=()):
        name = f'{ROOT}_{name}'
        return objects.Provider(
            uuid=str(uuid.uuid5(uuid.NAMESPACE_URL, name)),
            name=name,
            parent_uuid=parent.uuid if parent else None,
            resource_class=resource_class,
            total=total,
            reserved=reserved,
            traits=list(traits),
        )

    return make
