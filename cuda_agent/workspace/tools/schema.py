"""What a model is told about each tool, and the check of the arguments it sends. Names and arguments are the usual ones."""

from collections.abc import Mapping
from typing import Any

from cuda_agent.engines.messages import ToolSpec

_FILE = {"type": "string", "description": "path in the workspace"}
_FOLDER = {"type": "string", "description": "folder or file in the workspace; default: all of it"}
_EDIT = {
    "old_string": {"type": "string", "description": "text to replace; must occur exactly once unless replace_all"},
    "new_string": {"type": "string", "description": "text to put in its place"},
    "replace_all": {"type": "boolean", "description": "replace every occurrence"},
}
ALIASES = {"path": "file_path"}  # a frequent slip; taken where the tool has no argument of that name


def _spec(name: str, description: str, required: tuple[str, ...], properties: Mapping[str, Any]) -> ToolSpec:
    schema = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    return ToolSpec(name, description, schema)


TOOLS: tuple[ToolSpec, ...] = (
    _spec(
        "Bash",
        "Run a command in the workspace's shell; folder and variables persist between calls.",
        ("command",),
        {
            "command": {"type": "string"},
            "timeout": {"type": "number", "description": "milliseconds"},
            "description": {"type": "string", "description": "what the command does, in a few words"},
        },
    ),
    _spec(
        "Read",
        "Read a text file; lines come numbered.",
        ("file_path",),
        {
            "file_path": _FILE,
            "offset": {"type": "integer", "description": "first line, from 1"},
            "limit": {"type": "integer", "description": "number of lines (default 2000)"},
        },
    ),
    _spec(
        "Write",
        "Write a file, folders included. A file that exists must have been read before.",
        ("file_path", "content"),
        {"file_path": _FILE, "content": {"type": "string"}},
    ),
    _spec(
        "Edit",
        "Replace text in a file that has been read.",
        ("file_path", "old_string", "new_string"),
        {"file_path": _FILE, **_EDIT},
    ),
    _spec(
        "MultiEdit",
        "Several replacements in one file, in order; all of them or none.",
        ("file_path", "edits"),
        {
            "file_path": _FILE,
            "edits": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": _EDIT,
                    "required": ["old_string", "new_string"],
                    "additionalProperties": False,
                },
            },
        },
    ),
    _spec(
        "Glob",
        "List files whose path matches a pattern such as kernels/**/*.cpp.",
        ("pattern",),
        {"pattern": {"type": "string"}, "path": _FOLDER},
    ),
    _spec(
        "Grep",
        "Search files for a regular expression (Perl syntax).",
        ("pattern",),
        {
            "pattern": {"type": "string"},
            "path": _FOLDER,
            "glob": {"type": "string", "description": "only files with such names, e.g. *.cpp"},
            "output_mode": {"type": "string", "enum": ["files_with_matches", "content", "count"]},
            "-i": {"type": "boolean", "description": "ignore case"},
            "-n": {"type": "boolean", "description": "line numbers"},
            "-A": {"type": "integer", "description": "lines after a match"},
            "-B": {"type": "integer", "description": "lines before a match"},
            "-C": {"type": "integer", "description": "lines around a match"},
            "head_limit": {"type": "integer", "description": "at most so many lines"},
        },
    ),
)
BY_NAME: Mapping[str, ToolSpec] = {tool.name: tool for tool in TOOLS}
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def with_aliases(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with frequent slips in their names set right."""
    known = BY_NAME[name].parameters["properties"]
    return {ALIASES[key] if key not in known and key in ALIASES else key: value for key, value in arguments.items()}


def fault(value: Any, schema: Mapping[str, Any], where: str) -> str:
    """What is wrong with a value under the part of JSON schema used above; an empty string when nothing is."""
    kind = schema["type"]
    if not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean"):
        return f"{where} must be of type {kind}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{where} must be one of {', '.join(schema['enum'])}"
    if isinstance(value, list):
        faults = (fault(item, schema["items"], f"{where}[{index}]") for index, item in enumerate(value))
        return next(filter(None, faults), "")
    return _object_fault(value, schema, where) if isinstance(value, dict) else ""


def _object_fault(value: Mapping[str, Any], schema: Mapping[str, Any], where: str) -> str:
    properties = schema["properties"]
    missing = [key for key in schema.get("required", ()) if key not in value]
    if missing:
        return f"{where} lacks {', '.join(missing)}"
    unknown = [key for key in value if key not in properties]
    if unknown:
        return f"{where} has no argument {unknown[0]!r}; it takes {', '.join(properties)}"
    return next(filter(None, (fault(item, properties[key], f"{where}: {key}") for key, item in value.items())), "")
