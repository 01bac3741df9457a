# SPDX-License-Identifier: Apache-2.0
"""What an operator watches is what the rows say."""

import requests

from tests.fixtures.cloud import PATIENCE, Cloud, eventually
from tools.services.server import free_port

FPGA = {'resources:FPGA': '2', 'trait:CUSTOM_FAKE_DEVICE': 'required'}


def test_metrics_tell_what_the_rows_say(tmp_path):
    port = free_port()
    cloud = Cloud(tmp_path, conductors=2, more=(
        f'[conductor]\nmetrics_port = {port}\nsweep_interval = 1\naudit_interval = 1\n'))
    cloud.start()
    cloud.host()
    cloud.profile('two', FPGA)
    cloud.bind(cloud.request('two'))

    def told():
        return requests.get(f'http://127.0.0.1:{port}/metrics', timeout=PATIENCE).text
    eventually(lambda: 'cyborg_arqs{state="Bound"} 2.0' in told())
    text = told()
    assert 'cyborg_devices{type="FPGA"} 1.0' in text
    assert 'cyborg_agents{alive="true"} 1.0' in text
    eventually(lambda: 'cyborg_audit_findings 0.0' in told())
    cloud.stop()
