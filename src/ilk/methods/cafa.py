"""CAFA: one model for all, in whose mean clients weigh by how usual their data are and how good their models are for others.

Zhang, Wang, Li, Cardiff, Ranaweera: Optimizing Federated Learning on Non-IID Data with Clustering and Model Sharing,
EuCNC 2025. Also its two parts alone: CBCC (cbcc) and ABFA (abfa).

    CBCC   once: v_i = label histogram of client i / n_i;  k-means of the v_i with the k of the best silhouette
           w_i^K = size of i's cluster / n
    ABFA   each round: A_i = sum_j a_ij S_j / sum_j S_j,  S_j = training samples of j,
           a_ij = accuracy of theta_i on the validation data of j (i too)
    CAFA   w_i ~ w_i^K w_i^A over the cohort;  theta <- sum_i w_i theta_i

paper / released code / here
    k: the released training takes a fixed k = 6 (F15); the paper and this file the best silhouette (`k` fixes it). The code
      of its tables looks at k up to 19 (`k_most=19`); here up to n - 1.
    Histograms are of all data that is not for testing. They show the server each client's labels.
    Peers' models go through the server to the other clients of the cohort: m (m - 1) models a round, in the ledger.
      `peers` lets each model be judged by a random few only. If no model gets anything right, A_i is the same for all.
    The clients' own sizes do not enter, as in the paper. The CAFA authors train their baselines on more data than CAFA
      (F15); here all methods have the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ilk.checked import options
from ilk.client import Client
from ilk.clusters.kmeans import best_silhouette, kmeans
from ilk.method import Cohort, Message, Method, Server, State
from ilk.params import average
from ilk.server import Answers
from ilk.tasks import Fit
from ilk.tasks.score import predict


@dataclass(frozen=True)
class Histogram:
    """Send how many samples of each label one has."""

    def answer(self, client: Client, message: Message) -> Message:
        """Count all samples that are not for testing."""
        labels = client.data("train+validation")[1].numpy()
        return {"histogram": np.bincount(labels, minlength=client.classes).astype(np.float32)}


@dataclass(frozen=True)
class FitAndHold(Fit):
    """Train, and hold the model until it has been compared with those of the peers."""

    def answer(self, client: Client, message: Message) -> Message:
        """Send the model and remember it."""
        answer = super().answer(client, message)
        client.remember(model=answer["model"])
        return answer


@dataclass(frozen=True)
class Judge:
    """Test one's own model and the peers' on one's own validation data."""

    def answer(self, client: Client, message: Message) -> Message:
        """Return the accuracies: one's own model first, then those that were sent."""
        x, y = client.data("validation")
        models = [client.memory["model"], *message["peer_models"]]
        right = [(predict(client.net, model, x) == y.numpy()).mean() for model in models]
        return {"accuracies": np.array(right, dtype=np.float32)}


@dataclass(frozen=True)
class CAFAState(State):
    """The model, and what the histograms said."""

    usual: NDArray[np.float64]  # w^K of each client: the share of clients in its cluster
    label_cluster: NDArray[np.int64]  # cluster of each client by its labels; -1: has not sent a histogram
    iid: NDArray[np.bool_]  # in the largest cluster


@options
class Weighing(Method[CAFAState]):
    """One model in whose mean clients weigh by their labels, by their models' accuracy for others, or by both."""

    paper: ClassVar[str] = "Zhang et al., EuCNC 2025"
    by_labels: ClassVar[bool] = True
    by_accuracy: ClassVar[bool] = True

    @property
    def training(self) -> Fit:
        """Train, and hold the model for the comparison."""
        return FitAndHold(self.local) if self.by_accuracy else Fit(self.local)

    def start(self, server: Server) -> CAFAState:
        """Collect histograms and cluster them; who sends none weighs like the smallest cluster."""
        n = len(server.everyone)
        cluster = np.full(n, -1)
        if self.by_labels:
            sent = server.ask(Histogram(), server.everyone, {})
            shares = sent["histogram"] / sent["histogram"].sum(axis=1, keepdims=True)
            seed = int(server.stream("k-means").integers(2**31))
            cluster[sent.clients] = (
                kmeans(shares, k, seed)
                if (k := getattr(self, "k", None))
                else best_silhouette(shares, seed, getattr(self, "k_most", None))
            )
        sizes = np.bincount(cluster[cluster >= 0], minlength=1)
        usual = np.where(cluster >= 0, sizes[cluster], sizes.min()) / n if self.by_labels else np.ones(n)
        return CAFAState(server.initial_model[None], usual, cluster, cluster == int(np.argmax(sizes)))

    def round(self, server: Server, state: CAFAState, cohort: Cohort) -> CAFAState:
        """Train, let the peers judge, average with both weights."""
        trained = server.ask(self.training, cohort, self.message(state))
        weights = state.usual[trained.clients]
        if self.by_accuracy:
            weights = weights * self._accuracies(server, trained)
        return CAFAState(average(trained.models, weights), state.usual, state.label_cluster, state.iid)

    def _accuracies(self, server: Server, trained: Answers) -> NDArray[np.float64]:
        """Return A_i of each trained model, from the judgements that came."""
        position = {int(k): i for i, k in enumerate(trained.clients)}
        judged = self._who_judges_whom(server, len(trained))
        models = np.stack(trained.models)
        judgements = server.ask(Judge(), trained.clients, lambda k: {"peer_models": models[judged[position[k]]]})
        right, asked = np.zeros(len(trained)), np.zeros(len(trained))
        for k, size, message in zip(judgements.clients, judgements.sizes, judgements.messages, strict=True):
            tested = [position[int(k)], *judged[position[int(k)]]]
            right[tested] += size * message["accuracies"]
            asked[tested] += size
        if not right.any():
            return np.ones(len(trained))
        usual = right.sum() / asked.sum()  # for a model whose judges were all silent
        return np.where(asked > 0, right / np.maximum(asked, 1), usual)

    def _who_judges_whom(self, server: Server, m: int) -> list[NDArray[np.int64]]:
        """Return for each client of the cohort which others' models it is sent."""
        random = server.stream("peers")
        others = [np.delete(np.arange(m), i) for i in range(m)]
        peers = getattr(self, "peers", None)
        if peers is None or peers >= m - 1:
            return others
        judges = [random.choice(others[i], peers, replace=False) for i in range(m)]  # of model i
        return [np.array([i for i in range(m) if j in judges[i]], dtype=np.int64) for j in range(m)]


K = Annotated[int, Field(ge=2)] | None
PEERS = Annotated[int, Field(ge=1)] | None


@options
class CAFA(Weighing):
    """One model, in whose mean clients weigh by how usual their labels are and how good their models are for others."""

    name: ClassVar[str] = "cafa"

    k: K = None
    """Clusters of label histograms; default: the number with the best silhouette."""
    k_most: K = None
    """Largest k whose silhouette is looked at; default: clients - 1."""
    peers: PEERS = None
    """Each model is judged by this many random others; default: by the whole cohort."""


@options
class CBCC(Weighing):
    """CAFA's first part alone: clients weigh by how usual their labels are."""

    name: ClassVar[str] = "cbcc"
    by_accuracy: ClassVar[bool] = False

    k: K = None
    """Clusters of label histograms; default: the number with the best silhouette."""
    k_most: K = None
    """Largest k whose silhouette is looked at; default: clients - 1."""


@options
class ABFA(Weighing):
    """CAFA's second part alone: clients weigh by how good their models are for others."""

    name: ClassVar[str] = "abfa"
    by_labels: ClassVar[bool] = False

    peers: PEERS = None
    """Each model is judged by this many random others; default: by the whole cohort."""
