from pathlib import Path

import pytest
import yaml

from cuda_agent.config import load_campaign

INFRA = Path(__file__).resolve().parents[2] / "infra"


@pytest.mark.parametrize("path", sorted((INFRA / "campaigns").glob("*.yaml")), ids=lambda path: path.stem)
def test_campaign_files_resolve_and_survive_a_round_trip(path, tmp_path):
    config = load_campaign(path)
    (tmp_path / "copy.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")))
    assert load_campaign(tmp_path / "copy.yaml") == config


def test_the_paper_file_has_the_paper_values():
    paper = load_campaign(INFRA / "campaigns" / "paper.yaml")
    science = paper.ppo.science
    assert (science.clip_low, science.clip_high, science.gamma, science.lam) == (0.2, 0.28, 1.0, 0.95)
    assert (science.steps, science.minibatch, science.actor_rate, science.critic_rate) == (150, 1024, 3e-6, 6e-6)
    assert science.rollouts.episode.max_turns == 150 and science.rollouts.episode.context_tokens == 131_072
    assert paper.evaluation.science.episode.max_turns == 200
    assert paper.warmup.science.rollouts.single_turn and paper.warmup.science.rollouts.episode.context_tokens == 32_768
    sampling = science.rollouts.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (1.0, 1.0, 0)


def test_compose_names_every_service_it_depends_on():
    compose = yaml.safe_load((INFRA / "compose.yaml").read_text())
    services = compose["services"]
    for service in services.values():
        assert set(service.get("depends_on", {})) <= set(services)
    assert services["worker-gpu"]["profiles"] == ["gpu"]


def test_manifests_are_yaml_objects():
    for path in (INFRA / "kubernetes").glob("*.yaml"):
        for document in yaml.safe_load_all(path.read_text()):
            assert document["apiVersion"] and document["kind"]
