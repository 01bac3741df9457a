# SPDX-License-Identifier: Apache-2.0
"""Sending messages when nobody takes them."""

import oslo_messaging as messaging
import pytest

from cyborg import context, rpc
from cyborg.cmd import startup


@pytest.fixture
def client(tmp_path):
    options = tmp_path / 'cyborg.conf'
    options.write_text('[DEFAULT]\ntransport_url = rabbit://127.0.0.1:1/\n')
    startup.CONF.reset()
    conf = startup.configure(['--config-file', str(options)], default_config_files=[])
    yield rpc.Client(rpc.transport(conf), rpc.AGENT, '1.0')
    startup.CONF.reset()


def test_a_broker_that_is_away_is_an_error_and_not_a_wait_for_ever(client):
    with pytest.raises(messaging.MessageDeliveryFailure, match='broker is away'):
        client.cast(context.internal(), 'wake', 'compute1')
