"""What an engine or a router is asked over HTTP."""

from enum import StrEnum


class Question(StrEnum):
    """What an engine or a router is asked, by path. The first of a role's questions is its own word that it is ready.

    ROUTE goes to a prefill's bootstrap port: 200 once all its ranks are registered (disaggregation/common/conn.py).
    """

    READY = "/ready"
    READINESS = "/readiness"
    HEALTH = "/health"
    ROUTE = "/route?prefill_dp_rank=-1&prefill_cp_rank=-1&target_tp_rank=-1&target_pp_rank=-1"
    MODELS = "/v1/models"
    GENERATION = "/v1/completions"
