# SPDX-License-Identifier: Apache-2.0
"""The simulated kernel obeys the laws by which the real one is judged (see tests/kernel)."""

import pytest

from tests.kernel import laws
from tests.kernel.simulated import Simulated


@pytest.mark.parametrize('law', laws.LAWS, ids=lambda law: law.__name__)
def test_the_simulated_kernel_obeys(tmp_path, law):
    assert laws.judge(Simulated(tmp_path / 'sys'), law) is None
