"""What vLLM's workers can do besides (`--worker-extension-cls`): take a policy's weights in place of those they serve.

vLLM reads a checkpoint in place, but leaves out an output layer that is tied to the embeddings, and where it keeps that in
a form of its own (packed, on processors), it would go on with the old one.
"""

from typing import Any


class PolicySwitch:
    """Mixed into vLLM's worker class."""

    def switch_policy(self: Any, folder: str) -> None:
        """Read the weights of a checkpoint of the same shape."""
        self.reload_weights(weights_path=folder)
        model = self.model_runner.get_model()
        config = self.model_runner.model_config.hf_config
        head, inner = getattr(model, "lm_head", None), getattr(model, "model", None)
        embeddings = getattr(inner, "embed_tokens", None)
        if (
            getattr(config, "tie_word_embeddings", False)
            and head is not None
            and embeddings is not None
            and head is not embeddings
        ):
            head.weight = embeddings.weight
            head.quant_method.process_weights_after_loading(head)
