# SPDX-License-Identifier: Apache-2.0
"""cyborg-manage: what an operator does with the database at hand. Each topic is a module."""

from typing import Any

from oslo_config import cfg

from cyborg.cmd import manage_audit, manage_handles, manage_hosts, manage_profiles, startup

TOPICS = (manage_audit, manage_handles, manage_hosts, manage_profiles)


def _commands(subparsers: Any) -> None:
    for topic in TOPICS:
        topic.add_commands(subparsers)


def main() -> None:
    startup.CONF.register_cli_opt(cfg.SubCommandOpt(
        'command', title='Commands', handler=_commands))
    with startup.one_sentence():
        conf = startup.configure()
        raise SystemExit(conf.command.function(conf, conf.command))
