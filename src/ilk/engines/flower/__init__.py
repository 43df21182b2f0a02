"""The engine that carries messages over Flower: simulated on one machine, or to clients on machines of their own.

Only the files in this room import ``flwr``; the plain install works without it.
"""
