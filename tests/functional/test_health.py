# SPDX-License-Identifier: Apache-2.0
"""The health check of the API goes as deep as the operator asks, behind any paste file."""

import pytest
import webob

from cyborg import rpc
from cyborg.api import app, health
from cyborg.api.middleware import auth_token
from cyborg.conductor import health as conductor_health
from cyborg.conductor.rpcapi import ConductorAPI
from tests.fixtures import deployers
from tests.fixtures.cloud import Cloud

SETTINGS = """
[healthcheck]
backends = disable_by_file, cyborg_conductor, cyborg_database, cyborg_placement
disable_by_file_path = {switch}
"""


@pytest.fixture
def cloud(tmp_path, monkeypatch):
    for module in (health, conductor_health):
        monkeypatch.setattr(module, 'LIFETIME', 0)
    made = Cloud(tmp_path, more=SETTINGS.format(switch=tmp_path / 'out-of-service'))
    made.start()
    yield made
    made.stop()


def check(application):
    answer = webob.Request.blank('/healthcheck').get_response(application)
    return answer.status_int, {line for line in answer.text.splitlines() if line}


def test_the_api_is_well_as_long_as_what_it_needs_is(cloud, tmp_path, monkeypatch):
    api = cloud.standalone.api
    assert check(api) == (200, {'OK'})
    # when an operator takes it out of service
    (tmp_path / 'out-of-service').touch()
    assert check(api) == (503, {'OK', 'DISABLED BY FILE'})
    (tmp_path / 'out-of-service').unlink()
    # when Placement is away
    with monkeypatch.context() as patch:
        patch.setattr(cloud.placement.session, 'auth', None)
        patch.setattr(cloud.placement, 'endpoint_override', 'http://127.0.0.1:1')
        assert check(api) == (503, {'OK', 'Placement does not answer the conductor.'})
    # when the database is away
    engine = cloud.standalone.db.engine
    with monkeypatch.context() as patch:
        patch.setattr(engine, 'connect', lambda *args, **kwargs: 1 / 0)
        assert check(api) == (503, {'OK', 'The database of the conductor does not answer.'})
    assert check(api) == (200, {'OK'})


def test_the_paste_file_of_kolla_ansible_needs_no_token_for_it(cloud, tmp_path):
    conf = cloud.standalone.conf
    auth_token.register_opts(conf)
    for name, value, group in (
        ('auth_type', 'none', 'keystone_authtoken'),
        ('auth_strategy', 'keystone', 'api'),
        ('api_paste_config', str(deployers.write('kolla-ansible/api-paste.ini', tmp_path)), 'api'),
    ):
        conf.set_override(name, value, group)
    conductor = ConductorAPI(cloud.standalone.transport, rpc.Limits.of_api(conf))
    application = app.load_app(conf, conductor)
    assert check(application) == (200, {'OK'})
    assert webob.Request.blank('/v2/devices').get_response(application).status_int == 401
