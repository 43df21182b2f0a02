"""The two apps, as Flower wants them: their code is in the installed package."""

from ilk.engines.flower.apps import client, server

__all__ = ["client", "server"]
