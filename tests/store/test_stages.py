import os
import signal
import subprocess
import sys
import threading
import time
from uuid import uuid4

import pytest

from cuda_agent.config import CampaignConfig, DatasetScience
from cuda_agent.errors import ConfigError, StoreError
from cuda_agent.store.campaigns import begin_campaign, end_campaign
from cuda_agent.store.queries import get_stage_run
from cuda_agent.store.stages import StageRequest, claim_stage, stage_key
from cuda_agent.store.tables import Campaign, CampaignStage

HOLDER = """
import sys, time
from cuda_agent.store.session import open_store
from cuda_agent.store.stages import StageRequest, claim_stage
claim = claim_stage(open_store(), StageRequest("dataset", 1, {}, {"seed": 1}))
print(claim.row_id, flush=True)
time.sleep(120)
"""


def request(**changes):
    return StageRequest(**({"stage": "dataset", "version": 1, "inputs": {}, "science": {"seed": 1}} | changes))


def test_the_key_ignores_order_and_tells_everything_else_apart():
    one, two = uuid4(), uuid4()
    key = stage_key("rft", 1, {"policy": one, "batches": [one, two]}, {"a": 1, "b": 2})
    assert key == stage_key("rft", 1, {"batches": [str(two), str(one)], "policy": str(one)}, {"b": 2, "a": 1})
    assert key == stage_key("rft", 1, {"batches": [one, two], "policy": one, "critic": None}, {"a": 1, "b": 2})
    others = [
        stage_key("ppo", 1, {"policy": one, "batches": [one, two]}, {"a": 1, "b": 2}),
        stage_key("rft", 2, {"policy": one, "batches": [one, two]}, {"a": 1, "b": 2}),
        stage_key("rft", 1, {"policy": two, "batches": [one, two]}, {"a": 1, "b": 2}),
        stage_key("rft", 1, {"policy": one, "batches": [one, two]}, {"a": 1, "b": 3}),
        stage_key("rft", 1, {"policy": one, "batches": [one, two]}, {"a": 1, "b": 2}, "cpu"),
        stage_key("rft", 1, {"policy": one, "batches": [one, two]}, {"a": 1, "b": 2}, "cpu", "H200"),
    ]
    assert len({key, *others}) == 7


def test_the_key_reads_settings_models():
    assert stage_key("dataset", 1, {}, DatasetScience()) == stage_key("dataset", 1, {}, DatasetScience().model_dump(mode="json"))


def test_the_same_key_returns_the_finished_outputs(store):
    dataset_id = uuid4()
    with claim_stage(store, request()) as claim:
        assert claim.finished is None and not claim.resumed
        claim.finish({"dataset_id": dataset_id})
    with claim_stage(store, request()) as again:
        assert again.finished == {"dataset_id": str(dataset_id)}
        assert (again.row_id, again.generation, again.attempt) == (claim.row_id, 0, 1)
    assert get_stage_run(store, claim.row_id).status == "completed"


def test_a_failed_stage_is_resumed_as_the_next_attempt_and_seconds_add_up(store):
    with pytest.raises(ConfigError), claim_stage(store, request()) as claim:
        time.sleep(0.05)
        raise ConfigError("problem 3 is malformed; mend it")
    row = get_stage_run(store, claim.row_id)
    assert (row.status, row.message, row.attempt) == ("failed", "problem 3 is malformed; mend it", 1)
    with claim_stage(store, request()) as again:
        assert again.resumed and (again.row_id, again.attempt) == (claim.row_id, 2)
        time.sleep(0.05)
        again.finish({})
    row = get_stage_run(store, claim.row_id)
    assert row.status == "completed" and row.message == "" and 0.1 <= row.seconds < 5


def test_refresh_adds_a_generation_and_a_retry_of_it_goes_on(store):
    flow_run_id = uuid4()
    with claim_stage(store, request()) as first:
        first.finish({"n": 0})
    with pytest.raises(KeyboardInterrupt), claim_stage(store, request(refresh=True, flow_run_id=flow_run_id)) as second:
        raise KeyboardInterrupt
    assert second.generation == 1
    with claim_stage(store, request()) as found:
        assert found.finished == {"n": 0}
    with claim_stage(store, request(refresh=True, flow_run_id=flow_run_id)) as retried:
        assert (retried.row_id, retried.generation, retried.attempt) == (second.row_id, 1, 2)
        retried.finish({"n": 1})
    with claim_stage(store, request()) as found:
        assert found.finished == {"n": 1}
    with claim_stage(store, request(refresh=True, flow_run_id=uuid4())) as third:
        assert third.generation == 2


def test_a_second_start_waits_for_the_first_and_takes_its_result(store):
    told = []
    waited = {}

    def second():
        with claim_stage(store, request(), on_wait=told.append) as claim:
            waited["outputs"] = claim.finished

    with claim_stage(store, request()) as claim:
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.5)
        assert "outputs" not in waited and len(told) == 1 and "already running" in told[0]
        claim.finish({"n": 7})
    thread.join(10)
    assert waited["outputs"] == {"n": 7}


def test_waiting_may_be_bounded_and_other_keys_do_not_wait(store):
    with claim_stage(store, request()):
        with claim_stage(store, request(science={"seed": 2})) as other:
            other.finish({})
        with pytest.raises(StoreError, match="still running elsewhere"):
            claim_stage(store, request(), wait_seconds=0.3)


def test_a_killed_holder_releases_the_lock_and_its_row_is_resumed(store):
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    row_id = holder.stdout.readline().strip()
    with pytest.raises(StoreError, match="still running elsewhere"):
        claim_stage(store, request(), wait_seconds=0.3)
    holder.send_signal(signal.SIGKILL)
    holder.wait(10)
    with claim_stage(store, request(), wait_seconds=10) as claim:
        assert (str(claim.row_id), claim.attempt, claim.resumed) == (row_id, 2, True)
        claim.finish({})


def test_a_claim_that_lost_its_row_cannot_finish_it(store):
    claim = claim_stage(store, request())
    claim.close()  # as when the database restarted and the lock's connection died
    with claim_stage(store, request()) as newer:
        with pytest.raises(StoreError, match="taken over"):
            claim.finish({"n": 1})
        newer.finish({"n": 2})
    assert get_stage_run(store, newer.row_id).outputs == {"n": 2}


def test_a_campaign_lists_its_stages_once_and_in_order(store):
    campaign_id = begin_campaign(store, CampaignConfig(name="tiny"), flow_run_id := uuid4(), 17.5)
    assert begin_campaign(store, CampaignConfig(name="tiny"), flow_run_id, 3.0) == campaign_id
    with store.session() as session:
        assert session.get(Campaign, campaign_id).start_seconds == 17.5
    rows = []
    for seed in (1, 2, 1):
        with claim_stage(store, request(science={"seed": seed}, campaign_id=campaign_id)) as claim:
            rows.append(claim.row_id)
            if not claim.finished:
                claim.finish({"seed": seed})
    end_campaign(store, campaign_id, "completed")
    with store.session() as session:
        links = session.query(CampaignStage).order_by(CampaignStage.position).all()
        assert [(link.position, link.stage_run_id) for link in links] == [(0, rows[0]), (1, rows[1])]
        assert session.get(Campaign, campaign_id).status == "completed"
