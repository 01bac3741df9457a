# SPDX-License-Identifier: Apache-2.0
"""cyborg-manage: commands for operators that work on the database. Each topic is a module."""

from typing import Any

from oslo_config import cfg

from cyborg.cmd import (
    manage_agents,
    manage_audit,
    manage_handles,
    manage_hosts,
    manage_import,
    manage_profiles,
    startup,
)

TOPICS = (manage_agents, manage_audit, manage_handles, manage_hosts, manage_import, manage_profiles)


def _commands(subparsers: Any) -> None:
    for topic in TOPICS:
        topic.add_commands(subparsers)


def main() -> None:
    startup.CONF.register_cli_opt(cfg.SubCommandOpt('command', title='Commands', handler=_commands))
    with startup.exit_with_message():
        conf = startup.configure()
        raise SystemExit(conf.command.function(conf, conf.command))
