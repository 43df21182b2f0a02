"""What an accuracy can be: which model is measured, and on which data. Every accuracy carries both names."""

from __future__ import annotations

from typing import Literal

Protocol = Literal["served", "after-local", "last-held", "global"]

MEANING: dict[Protocol, str] = {
    "served": "the model that the server would send each client now, on that client's own test data",
    "after-local": "the same after one more local training, which is then thrown away",
    "last-held": "the model of each client's own last training (the initial one if it never trained), on its test data",
    "global": "the model that the server would send each client now, on the test set that belongs to nobody",
}

POLICY: dict[str, str] = {
    "own": "test samples drawn in each client's own class proportions",
    "label-set": "all test samples of every label that the client trains on",
    "holdout": "30 % of each client's own samples, held out",
    "given": "what each client brought",
    "mixed": "what each client brought, or 30 % of its own samples held out where it brought none",
    "whole": "the whole test split of each client's own data set",
}
