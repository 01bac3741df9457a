# SPDX-License-Identifier: Apache-2.0
"""The API without what is behind it: a client, and a conductor made of dictionaries."""

import datetime
import json
from dataclasses import dataclass, field
from typing import Any

import jsonschema
import pytest
import webob
from oslo_config import cfg

from cyborg import conf as options
from cyborg import errors, objects
from cyborg.api import app, microversions, openapi
from cyborg.api.controllers import root
from cyborg.api.types import json_schema

NOW = datetime.datetime(2026, 3, 1, 10, 0, tzinfo=datetime.UTC)
ROLES = ['admin', 'manager', 'member', 'reader']


@dataclass
class Conductor:
    """Answers from lists, and remembers what it was asked."""

    items: dict[str, list[Any]] = field(default_factory=dict)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    contexts: list[Any] = field(default_factory=list)
    #: raised by the next call
    error: Exception | None = None

    def _asked(self, context, method, **arguments):
        self.contexts.append(context)
        self.calls.append((method, arguments))
        if self.error:
            raise self.error

    def _list(self, kind, context, filters, page):
        self._asked(context, f'list_{kind}', filters=filters, page=page)
        found = [
            item
            for item in self.items.get(kind, [])
            if all(
                getattr(item, name) in (value if isinstance(value, list) else [value])
                for name, value in filters.items()
            )
        ]
        if page.get('marker'):
            uuids = [item.uuid for item in found]
            found = found[uuids.index(page['marker']) + 1 :]
        return found[: page.get('limit')]

    def _get(self, kind, context, uuid, missing):
        self._asked(context, f'get_{kind}', uuid=uuid)
        for item in self.items.get(kind, []):
            if uuid in (
                item.uuid,
                *(getattr(item, name) for name in ('name', 'hostname') if name in item.fields),
            ):
                return item
        raise missing

    def list_device_profiles(self, context, filters, page):
        return self._list('device_profiles', context, filters, page)

    def get_device_profile(self, context, ref):
        return self._get('device_profiles', context, ref, errors.ProfileNotFound(names=ref))

    def get_availability(self, context, ref, hostname=None, with_hosts=False):
        self._asked(context, 'get_availability', ref=ref, hostname=hostname, with_hosts=with_hosts)
        found = self.get_device_profile(context, ref)
        group = {'group': 0, 'fits': 2, 'units': 4, 'free': 2, 'obstacles': {'in_use': 2}}
        host = objects.HostAvailability(
            hostnames=['compute1'],
            fits=2,
            is_at_most=False,
            groups=[objects.GroupAvailability(**group, sentence='It fits 2 times.')],
        )
        return objects.Availability(
            profile_uuid=found.uuid,
            profile_name=found.name,
            is_enabled=True,
            fits=2,
            is_at_most=False,
            hosts_considered=1,
            hosts_fitting=1,
            obstacles={},
            groups=[objects.GroupAvailability(**group)],
            hosts=[host] if with_hosts else [],
        )

    def list_capacity(self, context):
        self._asked(context, 'list_capacity')
        return []

    def get_usage(self, context, **given):
        self._asked(context, 'get_usage', **given)
        share = objects.ProjectUsage(
            project_id=given.get('project_id') or 'mine',
            device_profile_name='x',
            resource_class='FPGA',
            requests=2,
            hours=1.5,
        )
        return objects.Usage(start=NOW, end=NOW, complete_since=NOW, projects=[share])

    def get_topology(self, context, hostname):
        self._asked(context, 'get_topology', hostname=hostname)
        return objects.HostUnits(hostname=hostname, is_alive=True, devices=[])

    def create_device_profiles(self, context, profiles):
        self._asked(context, 'create_device_profiles', profiles=profiles)
        for number, profile in enumerate(profiles):
            if not profile.obj_attr_is_set('uuid'):
                profile.uuid = uuid(number)
            profile.created_at, profile.updated_at = NOW, None
        return profiles

    def update_device_profile(self, context, ref, changes):
        self._asked(context, 'update_device_profile', ref=ref, changes=changes)
        found = self._get('device_profiles', context, ref, errors.ProfileNotFound(names=ref))
        return objects.DeviceProfile.of(found, **changes)

    def delete_device_profiles(self, context, refs):
        self._asked(context, 'delete_device_profiles', refs=refs)

    def create_arqs(self, context, profile_name):
        self._asked(context, 'create_arqs', profile_name=profile_name)
        return self.items['arqs']

    def list_arqs(self, context, filters, page):
        return self._list('arqs', context, filters, page)

    def get_arq(self, context, uuid):
        return self._get('arqs', context, uuid, errors.ArqNotFound(uuids=uuid))

    def get_arq_history(self, context, uuid):
        self._asked(context, 'get_arq_history', uuid=uuid)
        return []

    def bind_arqs(self, context, bindings, waited):
        self._asked(context, 'bind_arqs', bindings=bindings)
        return self.items['arqs']

    def unbind_arqs(self, context, uuids):
        self._asked(context, 'unbind_arqs', uuids=uuids)

    def delete_arqs(self, context, uuids):
        self._asked(context, 'delete_arqs', uuids=uuids)

    def delete_instance_arqs(self, context, instance_uuid):
        self._asked(context, 'delete_instance_arqs', instance_uuid=instance_uuid)

    def list_devices(self, context, filters, page):
        return self._list('devices', context, filters, page)

    def get_device(self, context, uuid):
        return self._get('devices', context, uuid, errors.DeviceNotFound(uuid=uuid))

    def set_device_status(self, context, uuid, status):
        self._asked(context, 'set_device_status', uuid=uuid, status=status)

    def list_hand_backs(self, context, filters, page, device_uuid):
        filters = filters | {'device_uuid': device_uuid}
        return self._list('hand_backs', context, filters, page)

    def clean_handle(self, context, device_uuid, handle_uuid):
        self._asked(context, 'clean_handle', device_uuid=device_uuid, handle_uuid=handle_uuid)
        return hand_back(2, state='open', error=None, steps=[])

    def release_handle(self, context, device_uuid, handle_uuid, reason):
        self._asked(
            context,
            'release_handle',
            device_uuid=device_uuid,
            handle_uuid=handle_uuid,
            reason=reason,
        )
        return hand_back(1, state='failed', decision='release', decision_reason=reason)

    def list_deployables(self, context, filters, page):
        return self._list('deployables', context, filters, page)

    def get_deployable(self, context, uuid):
        return self._get('deployables', context, uuid, errors.DeployableNotFound(uuid=uuid))

    def program_deployable(self, context, uuid, image_uuid):
        self._asked(context, 'program_deployable', uuid=uuid, image_uuid=image_uuid)
        found = self._get('deployables', context, uuid, errors.DeployableNotFound(uuid=uuid))
        found.bitstream_id = image_uuid
        started = found.obj_clone()
        started.program_image, started.is_programming = image_uuid, True
        return started

    def list_attributes(self, context, filters, page, nested):
        return self._list('attributes', context, filters, page)

    def get_attribute(self, context, uuid, nested):
        return self._get('attributes', context, uuid, errors.AttributeNotFound(uuid=uuid))

    def create_attribute(self, context, deployable, key, value, parent_uuid):
        self._asked(
            context,
            'create_attribute',
            deployable=deployable,
            key=key,
            value=value,
            parent_uuid=parent_uuid,
        )
        return attribute(1, key=key, value=value, parent_uuid=parent_uuid)

    def delete_attribute(self, context, uuid):
        self._asked(context, 'delete_attribute', uuid=uuid)

    def list_agents(self, context, filters, page):
        return self._list('agents', context, filters, page)

    def get_agent(self, context, ref):
        return self._get('agents', context, ref, errors.AgentNotFound(ref=ref))


def uuid(number):
    """A recognisable uuid."""
    return f'00000000-0000-4000-8000-{number:012d}'


def arq(number=1, state='Initial', **facts):
    return objects.Arq.of(
        {
            'uuid': uuid(number),
            'state': state,
            'device_profile_name': 'gzip',
            'device_profile_group_id': 0,
            'group': {'resources:FPGA': '1'},
            'hostname': None,
            'device_rp_uuid': None,
            'instance_uuid': None,
            'project_id': 'mine',
            'attach_handle_type': None,
            'attach_handle_uuid': None,
            'attach_handle_info': {},
            'reason': None,
            'created_at': NOW,
            'updated_at': None,
        }
        | facts
    )


def device(number=1, **facts):
    return objects.Device.of(
        {
            'uuid': uuid(number),
            'hostname': 'compute1',
            'key': f'key{number}',
            'type': 'FPGA',
            'vendor': '0xABCD',
            'model': 'fake',
            'driver_name': 'fake',
            'std_board_info': {'product_id': '1eb8'},
            'vendor_board_info': {},
            'status': 'enabled',
            'created_at': NOW,
            'updated_at': None,
        }
        | facts
    )


def deployable(number=1, **facts):
    return objects.Deployable.of(
        {
            'uuid': uuid(number),
            'name': 'compute1_FakeDevice',
            'parent_id': None,
            'parent_uuid': None,
            'root_id': None,
            'root_uuid': None,
            'device_id': 7,
            'device_uuid': uuid(77),
            'rp_uuid': uuid(99),
            'driver_name': 'fake',
            'num_accelerators': 16,
            'attribute_list': '[{"rc": "FPGA"}]',
            'created_at': NOW,
            'updated_at': NOW,
        }
        | facts
    )


def hand_back(number=1, **facts):
    return objects.HandBack.of(
        {
            'uuid': uuid(number),
            'kind': 'clean',
            'state': 'quarantined',
            'hostname': 'compute1',
            'device_uuid': uuid(1),
            'deployable_uuid': uuid(2),
            'handle_uuid': uuid(3),
            'driver_name': 'pci_driver',
            'handle_type': 'PCI',
            'handle_info': {'bus': '3b'},
            'arq_uuid': uuid(4),
            'instance_uuid': uuid(5),
            'project_id': 'mine',
            'attempts': 3,
            'error': 'Step reset failed: it burns.',
            'steps': [objects.Step(name='reset', seconds=0.5, error='It burns.')],
            'seconds': 0.5,
            'versions': {'firmware': '1.2'},
            'finished_at': NOW,
            'decision': None,
            'decided_by': None,
            'decision_reason': None,
            'decided_at': None,
            'created_at': NOW,
            'updated_at': None,
        }
        | facts
    )


def attribute(number=1, **facts):
    return objects.Attribute.of(
        {
            'uuid': uuid(number),
            'deployable_id': 3,
            'deployable_uuid': uuid(33),
            'parent_uuid': None,
            'key': 'rc',
            'value': 'FPGA',
            'created_at': NOW,
            'updated_at': None,
        }
        | facts
    )


def profile(number=1, **facts):
    return objects.DeviceProfile.of(
        {
            'uuid': uuid(number),
            'name': f'profile{number}',
            'description': None,
            'groups': [{'resources:FPGA': '1'}],
            'created_at': NOW,
            'updated_at': None,
        }
        | facts
    )


def agent(number=1, **facts):
    return objects.Agent.of(
        {
            'uuid': uuid(number),
            'hostname': f'compute{number}',
            'last_heartbeat': NOW,
            'is_alive': True,
            'is_ready': True,
            'conflicts': {},
            'created_at': NOW,
            'updated_at': None,
            'drivers': [objects.Driver(name='fake_driver', status='failed', error='It burns.')],
        }
        | facts
    )


class Client:
    """Speaks HTTP to a WSGI application, as whoever one likes."""

    def __init__(self, application, roles=ROLES, service=False):
        self._application = application
        self._headers = {'X-Roles': ','.join(roles), 'X-Project-Id': 'mine', 'X-User-Id': 'me'}
        if service:
            self._headers['X-Service-Roles'] = 'service'

    def __call__(self, method, path, body=None, version=None, headers=None, **environ):
        request = webob.Request.blank(path, method=method, environ=environ)
        request.headers.update(self._headers)
        if body is not None:
            request.body = body if isinstance(body, bytes) else json.dumps(body).encode()
            request.content_type = 'application/json'
        if version:
            request.headers['OpenStack-API-Version'] = f'accelerator {version}'
        request.headers.update(headers or {})
        return request.get_response(self._application)

    def __getattr__(self, method):
        return lambda *args, **kwargs: self(method.upper(), *args, **kwargs)


def conforms(response, name, key=None):
    """The answer has the shape that its version describes; ``key``: below that key."""
    version = microversions.requested(response.headers['OpenStack-API-Version'])
    document = openapi.describe(root.COLLECTIONS, version)
    shown = response.json[key] if key else response.json
    for item in shown if isinstance(shown, list) else [shown]:
        jsonschema.Draft202012Validator(
            document | json_schema.ref(name), format_checker=jsonschema.FormatChecker()
        ).validate(item)
    return shown


def fault(response):
    """The sentence in an error body, which must have its exact shape."""
    assert response.content_type == 'application/json'
    assert list(response.json) == ['error_message']
    inner = json.loads(response.json['error_message'])
    assert set(inner) == {'faultcode', 'faultstring', 'debuginfo'}
    assert inner['debuginfo'] is None
    assert inner['faultcode'] == ('Client' if response.status_int < 500 else 'Server')
    return inner['faultstring']


@pytest.fixture
def conf():
    conf = cfg.ConfigOpts()
    options.register(conf)
    conf([], default_config_files=[], default_config_dirs=[])
    return conf


@pytest.fixture
def conductor():
    return Conductor()


@pytest.fixture
def application(conf, conductor):
    return app.make_app(conf, conductor)


@pytest.fixture
def admin(application):
    return Client(application)


@pytest.fixture
def nova(application):
    """A member, for whom a service vouches."""
    return Client(application, roles=['member', 'reader'], service=True)
