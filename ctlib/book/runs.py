"""Running one chapter: in a fresh process, with papermill, to a notebook that appears whole or not at all."""

from __future__ import annotations

import multiprocessing
import os
import platform
import resource
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import nbformat

from ctlib.book.places import Book
from ctlib.book.records import numbered_cells, read_notebook

VERSIONS = ("python", "torch", "numpy", "transformers")  # what the record of a run names
CELL_SECONDS = 600  # a cell that runs longer is stopped
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "JUPYTER_PREFER_ENV_PATH": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


class ChapterError(RuntimeError):
    """A chapter that did not run through; the message names the chapter, the cell and the reason."""

    def __init__(self, chapter: str, reason: str, cell: int | None = None, source: str = ""):
        where = chapter if cell is None else f"{chapter}, cell {cell} ({_first_line(source)!r})"
        super().__init__(f"{where}: {reason}")

    def __reduce__(self):
        return _rebuild, (str(self),)


def _rebuild(message: str) -> ChapterError:
    """A `ChapterError` with a finished message: how one travels between processes."""
    error = ChapterError.__new__(ChapterError)
    RuntimeError.__init__(error, message)
    return error


def check_parameters(chapter: Path, parameters: dict[str, Any]) -> None:
    """Raise unless the chapter has a cell tagged `parameters` that knows every name given."""
    cells = [cell for cell in read_notebook(chapter).cells if "parameters" in cell.metadata.get("tags", [])]
    if len(cells) != 1:
        raise ChapterError(chapter.stem, f"{len(cells)} cells are tagged `parameters`; a chapter has exactly one")
    import papermill

    known = sorted(papermill.inspect_notebook(str(chapter)))
    for name in parameters:
        if name not in known:
            raise ChapterError(chapter.stem, f"no parameter is called {name!r}; the parameters are {', '.join(known)}")


def run(
    book: Book,
    chapter: Path,
    output: Path,
    parameters: dict[str, Any] | None = None,
    *,
    key: str = "",
    cell_seconds: int = CELL_SECONDS,
) -> dict[str, Any]:
    """Run a chapter in the root of its book and write it, with outputs, to `output`.

    Returns the record of the run (seconds, memory, versions; also in the notebook's metadata under `run`, with
    `key`). Raises `ChapterError`, and writes nothing, when a cell fails or prints to stderr, when the kernel dies and
    when a cell takes longer than `cell_seconds`.
    """
    parameters = dict(parameters or {})
    check_parameters(chapter, parameters)
    output.parent.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix=".run-", dir=output.parent) as scratch,
        ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process,
    ):
        written = Path(scratch) / chapter.name
        job = process.submit(_execute, book.root, chapter, written, parameters, cell_seconds)
        try:
            record = job.result() | {"key": key, "parameters": parameters}
        except BrokenProcessPool:
            raise ChapterError(chapter.stem, "the process that ran it was killed (out of memory?)") from None
        notebook = read_notebook(written)
        _refuse_stderr(notebook, chapter.stem)
        notebook.metadata.pop("papermill", None)
        for cell in notebook.cells:
            cell.metadata.pop("papermill", None)
        notebook.metadata["run"] = record
        nbformat.write(notebook, written)
        os.replace(written, output)
    return record


def _execute(root: Path, chapter: Path, output: Path, parameters: dict, cell_seconds: int) -> dict[str, Any]:
    """The work of `run`, in a process whose only child is the kernel, so that the peak memory is the kernel's."""
    os.environ.update(_ENVIRONMENT)
    log = tempfile.TemporaryFile()  # noqa: SIM115 (open until the process ends)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(log.fileno(), stream.fileno())
    import papermill
    from nbclient.exceptions import CellTimeoutError, DeadKernelError

    began = time.perf_counter()
    try:
        papermill.execute_notebook(
            str(chapter),
            str(output),
            parameters,
            kernel_name="python3",
            cwd=str(root),
            progress_bar=False,
            execution_timeout=cell_seconds,
        )
    except papermill.PapermillExecutionError as error:
        reason = f"{error.ename}: {error.evalue}"
    except DeadKernelError:
        reason = "the kernel died (killed, out of memory or crashed)" + _last_words(log)
    except CellTimeoutError:
        reason = f"still running after {cell_seconds} s, stopped"
    except Exception as error:
        reason = f"{type(error).__name__}: {error}" + _last_words(log)
    else:
        return _record(chapter, time.perf_counter() - began)
    raise ChapterError(chapter.stem, reason, *_stopped_at(output))


def _stopped_at(output: Path) -> tuple[int | None, str]:
    """Number and source of the last cell that papermill started."""
    found = None, ""
    if output.is_file():
        for number, cell in numbered_cells(read_notebook(output)):
            if cell.metadata.get("papermill", {}).get("start_time"):
                found = number, cell.source
    return found


def _last_words(log) -> str:
    """The last line that the kernel wrote to its terminal, other than its usual greeting."""
    log.seek(0)
    lines = [line.strip() for line in log.read().decode(errors="replace").splitlines()]
    lines = [line for line in lines if line and "without encryption" not in line]
    return f": {lines[-1][:300]}" if lines else ""


def _refuse_stderr(notebook: nbformat.NotebookNode, chapter: str) -> None:
    for number, cell in numbered_cells(notebook):
        for output in cell.get("outputs", []):
            if output.output_type == "stream" and output.name == "stderr":
                raise ChapterError(chapter, f"prints to stderr: {output.text.strip()[:600]}", number, cell.source)


def _record(chapter: Path, seconds: float) -> dict[str, Any]:
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss  # kB on Linux, bytes on macOS
    return {
        "chapter": chapter.stem,
        "seconds": round(seconds, 1),
        "megabytes": round(peak / (1e6 if sys.platform == "darwin" else 1e3)),
        "python": platform.python_version(),
        **{name: version(name) for name in VERSIONS[1:]},
        "processor": _processor(),
        "date": datetime.now(UTC).date().isoformat(),
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    for line in cpuinfo.read_text().splitlines() if cpuinfo.is_file() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _first_line(source: str) -> str:
    return next((line.strip() for line in source.splitlines() if line.strip()), "")
