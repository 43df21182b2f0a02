"""What starts the programs of a deployment: systemd units, and a compose file."""

from __future__ import annotations

from collections.abc import Sequence

from ilk.engines.flower.layout import ServerFile
from ilk.engines.flower.quiet import OFF

LOCKED = """\
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=yes
PrivateDevices=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX"""


def server_unit() -> str:
    """Return the unit of a server. It expects the folder at /etc/ilk/server and a virtual environment at /opt/ilk."""
    return f"""\
# cp -r server /etc/ilk/server; chown -R ilk /etc/ilk/server; systemctl enable --now ilk-serve
# Write into METHOD= and OPTIONS= what you would write behind `ilk serve`. After a crash it goes on where it was.
[Unit]
Description=ilk: federation server
After=network-online.target
Wants=network-online.target

[Service]
User=ilk
Environment=METHOD=pacfl "OPTIONS=--rounds 20 --stay"
{_environment()}
ExecStart=/bin/sh -c 'if test -e /etc/ilk/server/run/run.json; \\
  then exec /opt/ilk/bin/ilk serve /etc/ilk/server --resume; \\
  else exec /opt/ilk/bin/ilk serve /etc/ilk/server --method $$METHOD $$OPTIONS; fi'
Restart=on-failure
RestartSec=10
ReadWritePaths=/etc/ilk/server
{LOCKED}

[Install]
WantedBy=multi-user.target
"""


def client_unit(name: str) -> str:
    """Return the unit of a client."""
    return f"""\
# cp -r {name} /etc/ilk/{name}; chown -R ilk /etc/ilk/{name}; systemctl enable --now ilk-client
# Write into DATA= where this client's data are.
[Unit]
Description=ilk: client {name}
After=network-online.target
Wants=network-online.target

[Service]
User=ilk
Environment=DATA=/var/lib/ilk/{name}.npz
{_environment()}
ExecStart=/opt/ilk/bin/ilk client /etc/ilk/{name} --data ${{DATA}}
Restart=always
RestartSec=10
ReadWritePaths=/etc/ilk/{name}
{LOCKED}

[Install]
WantedBy=multi-user.target
"""


def compose(server: ServerFile, clients: Sequence[str]) -> str:
    """Return a compose file with all of them; take out of it what runs on other machines."""
    environment = "\n".join(f'    {name}: "{value}"' for name, value in OFF.items())
    text = f"""\
# An image with Python 3.11 and `pip install 'ilk[flower]'`, called ilk. Data of client NAME: ./data/NAME.npz
x-ilk: &ilk
  image: ilk
  restart: unless-stopped
  environment:
{environment}
  security_opt: ["no-new-privileges:true"]
  cap_drop: [ALL]

services:
  server:
    <<: *ilk
    command:  # after a crash it goes on where it was
      - sh
      - -c
      - if test -e /server/run/run.json; then exec ilk serve /server --resume;
        else exec ilk serve /server --method pacfl --rounds 20 --stay; fi
    ports: ["{server.port}:{server.port}"]
    volumes: ["./server:/server"]
    networks: {{default: {{aliases: ["{server.host}"]}}}}
"""
    for name in clients:
        text += f"""\
  {name}:
    <<: *ilk
    command: ilk client /client --data /data/{name}.npz
    volumes: ["./{name}:/client", "./data/{name}.npz:/data/{name}.npz:ro"]
"""
    return text


def _environment() -> str:
    return "\n".join(f"Environment={name}={value}" for name, value in OFF.items())
