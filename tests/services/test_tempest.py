# SPDX-License-Identifier: Apache-2.0
"""The API tests of the public tempest plugin, on services as processes and a real Keystone."""

import pytest

from tests.fixtures.identity import AUTHENTICATION, REGION, Identity
from tests.fixtures.processes import Deployment
from tests.fixtures.tempest import Tempest
from tools import services

API_TESTS = 'cyborg_tempest_plugin.tests.api.'
#: These want a 500 for a caller's mistake, which is never the right answer.
WRONG = {
    f'{API_TESTS}test_device_profile_negative.DeviceProfileNegativeTest.{name}': why
    for name, why in {
        'test_create_device_profile_name_is_null': '422: the name is empty',
        'test_create_device_profile_name_to_long': '422: it has 256 characters',
        'test_create_device_profile_server_fault': '409: the uuid is taken',
    }.items()
}


@pytest.fixture(scope='module')
def identity():
    with services.keystone() as keystone:
        yield Identity(keystone)


@pytest.fixture
def deployment(tmp_path, broker, database, identity):
    """It asks Keystone who we are, and has the device that the plugin's tests expect."""
    authentication = AUTHENTICATION.format(
        url=identity.url, password=identity.password, region=REGION
    )
    with (
        Deployment(tmp_path, broker.url, database.url, api=authentication) as made,
        identity.connect('admin') as admin,
    ):
        made.session.headers['X-Auth-Token'] = admin.auth_token
        made.start()
        made.host()
        identity.register(f'{made.url}/v2')
        yield made


@pytest.mark.timeout(1800)
@pytest.mark.filterwarnings('ignore::PendingDeprecationWarning')  # of the SDK, by itself
def test_the_public_plugin_finds_what_it_expects(deployment, identity, tmp_path):
    verdicts, written = Tempest(tmp_path, identity).run(API_TESTS)
    assert len(verdicts) == 42, written
    others = {name: verdict for name, verdict in verdicts.items() if verdict != 'ok'}
    assert others == dict.fromkeys(WRONG, 'FAILED'), written
