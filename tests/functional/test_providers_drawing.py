# SPDX-License-Identifier: Apache-2.0
"""An agent publishes the providers that the documentation draws."""

import pytest

from tests.fixtures.cloud import Cloud, eventually
from tests.fixtures.hosts import SimHost
from tools import drawings


@pytest.mark.any_database
def test_an_agent_publishes_the_providers_of_the_drawing(tmp_path):
    cloud = Cloud(tmp_path, more=drawings.OPTIONS)
    cloud.start()
    try:
        host = cloud.host(make=SimHost, drivers=drawings.DRIVERS)
        for address, model in drawings.CARDS.items():
            host.plug_in(model, at=address)
        eventually(lambda: len(cloud.providers()) == len(drawings.PROVIDERS))
        cloud.rest()
        published = {
            drawings.Provider(
                name,
                provider['parent'],
                tuple((kind, each['total']) for kind, each in provider['inventories'].items()),
                tuple(sorted(provider['traits'])),
            )
            for name, provider in cloud.providers().items()
        }
        assert published == {*drawings.PROVIDERS}
    finally:
        cloud.stop()
