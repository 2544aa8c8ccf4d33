"""What a model is told about each tool, and the check of the arguments it sends. Names and arguments are the usual ones."""

from collections.abc import Collection, Mapping
from typing import Any

from cuda_agent.engines.messages import ToolSpec
from cuda_agent.workspace.tools.todo import MOST

_FILE = {"type": "string", "description": "path in the workspace"}
_FOLDER = {"type": "string", "description": "folder or file in the workspace; default: all of it"}
_EDIT = {
    "old_string": {"type": "string", "description": "text to replace; must occur exactly once unless replace_all"},
    "new_string": {"type": "string", "description": "text to put in its place"},
    "replace_all": {"type": "boolean", "description": "replace every occurrence"},
}
ALIASES = {  # frequent slips; taken where the tool has no argument of that name, and one of these
    "path": ("file_path", "notebook_path"),
    "file_path": ("notebook_path", "path"),
    "bash_id": ("shell_id",),
    "shell_id": ("bash_id",),
}


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
            "run_in_background": {"type": "boolean", "description": "do not wait; read its output with BashOutput"},
        },
    ),
    _spec(
        "BashOutput",
        "What a background command has printed since the last look, and whether it still runs.",
        ("bash_id",),
        {
            "bash_id": {"type": "string", "description": "the id that Bash answered with"},
            "filter": {"type": "string", "description": "show only lines with this regular expression; others are dropped"},
        },
    ),
    _spec(
        "KillBash",
        "End a background command and everything it started.",
        ("shell_id",),
        {"shell_id": {"type": "string", "description": "the id that Bash answered with"}},
    ),
    _spec(
        "Read",
        "Read a text file; lines come numbered. Of a notebook (.ipynb) the cells with their ids.",
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
        "NotebookEdit",
        "Replace, insert or delete a cell of a notebook (.ipynb) that has been read.",
        ("notebook_path", "new_source"),
        {
            "notebook_path": _FILE,
            "new_source": {"type": "string", "description": "the cell's new text; of no effect when deleting"},
            "cell_id": {"type": "string", "description": "cell to change; insert puts the new one after it, or first"},
            "cell_type": {"type": "string", "enum": ["code", "markdown", "raw"]},
            "edit_mode": {"type": "string", "enum": ["replace", "insert", "delete"], "description": "default: replace"},
        },
    ),
    _spec(
        "Glob",
        "List files whose path matches a pattern such as kernels/**/*.{cpp,h}, newest first.",
        ("pattern",),
        {"pattern": {"type": "string"}, "path": _FOLDER},
    ),
    _spec(
        "Grep",
        "Search files for a regular expression (ripgrep).",
        ("pattern",),
        {
            "pattern": {"type": "string"},
            "path": _FOLDER,
            "glob": {"type": "string", "description": "only files with such names, e.g. *.cpp"},
            "output_mode": {"type": "string", "enum": ["files_with_matches", "content", "count"]},
            "type": {"type": "string", "description": "only files of a type that ripgrep knows, e.g. cpp or py"},
            "-i": {"type": "boolean", "description": "ignore case"},
            "-n": {"type": "boolean", "description": "line numbers (default true; content only)"},
            "-A": {"type": "integer", "minimum": 0, "description": "lines after a match (content only)"},
            "-B": {"type": "integer", "minimum": 0, "description": "lines before a match (content only)"},
            "-C": {"type": "integer", "minimum": 0, "description": "lines around a match (content only)"},
            "head_limit": {"type": "integer", "minimum": 0, "description": "at most so many lines (default 200; 0: all)"},
            "multiline": {"type": "boolean", "description": "let matches span lines, and . match their ends"},
        },
    ),
    _spec(
        "TodoWrite",
        "Keep a list of what is to be done; each call replaces the whole list.",
        ("todos",),
        {
            "todos": {
                "type": "array",
                "maxItems": MOST,
                "items": {
                    "type": "object",
                    "properties": {
                        "content": {"type": "string"},
                        "status": {"type": "string", "enum": ["pending", "in_progress", "completed"]},
                        "activeForm": {"type": "string", "description": "what is going on while it is in progress"},
                        "id": {"type": ["string", "integer"]},
                        "priority": {"type": "string", "enum": ["high", "medium", "low"]},
                    },
                    "required": ["content", "status"],
                    "additionalProperties": False,
                },
            }
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

    def meant(key: str) -> str:
        fitting = (other for other in ALIASES.get(key, ()) if other in known and other not in arguments)
        return key if key in known else next(fitting, key)

    return {meant(key): value for key, value in arguments.items()}


def offered(names: Collection[str]) -> tuple[ToolSpec, ...]:
    """The tools with these names. Bash speaks of background commands only beside the tool that reads their output."""
    chosen = [tool for tool in TOOLS if tool.name in names]
    return tuple(_foreground(tool) if tool.name == "Bash" and "BashOutput" not in names else tool for tool in chosen)


def _foreground(bash: ToolSpec) -> ToolSpec:
    properties = {key: value for key, value in bash.parameters["properties"].items() if key != "run_in_background"}
    return ToolSpec(bash.name, bash.description, {**bash.parameters, "properties": properties})


def fault(value: Any, schema: Mapping[str, Any], where: str) -> str:
    """What is wrong with a value under the part of JSON schema used above; an empty string when nothing is."""
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if not any(isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool)) for kind in kinds):
        return f"{where} must be of type {' or '.join(kinds)}"
    if "minimum" in schema and value < schema["minimum"]:
        return f"{where} must be at least {schema['minimum']}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{where} must be one of {', '.join(schema['enum'])}"
    if isinstance(value, list):
        if len(value) > schema.get("maxItems", len(value)):
            return f"{where} has {len(value)} entries; at most {schema['maxItems']} are taken"
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
