"""A checkpoint that a person names: a folder of theirs, or a model of the Hugging Face hub. No torch here."""

from pathlib import Path

from cuda_agent.errors import ConfigError

NEEDED = ("config.json", "tokenizer.json")


def named_checkpoint(name: str) -> Path:
    """The local folder of a checkpoint, fetched from the hub unless `name` is a folder.

    Raises:
        ConfigError: the name is neither a folder nor a model that can be fetched, or the folder is no model's.
    """
    folder = Path(name).expanduser()
    if not folder.is_dir():
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

        try:
            folder = Path(snapshot_download(name, allow_patterns=["*.json", "*.safetensors", "*.jinja", "*.model"]))
        except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
            raise ConfigError(f"checkpoint {name!r} is no folder and cannot be fetched from the hub; check it") from error
    missing = [part for part in NEEDED if not (folder / part).is_file()]
    if missing:
        raise ConfigError(f"checkpoint {folder} lacks {' and '.join(missing)}; name a Hugging Face model folder")
    return folder
