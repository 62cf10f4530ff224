"""NVIDIA's management library: every question is answered or refused, in one way.

The bindings raise an exception class for each error code, lack functions that are younger than they
are, and find out by calling whether the driver's library has one. All that becomes `Refused` here.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Nvml", "Refused"]

NO_DRIVER = "no NVIDIA driver"
WHY_SILENT = {
    "NVML_ERROR_LIBRARY_NOT_FOUND": NO_DRIVER,
    "NVML_ERROR_DRIVER_NOT_LOADED": "the NVIDIA driver is installed but not loaded",
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": "the NVIDIA driver was updated: reboot",
    "NVML_ERROR_NO_PERMISSION": "this user may not use the NVIDIA driver",
    "NVML_ERROR_FUNCTION_NOT_FOUND": "the NVIDIA driver is too old",
}
"""What it means when the library does not even start."""


class Refused(Exception):
    """NVML did not answer: its error code, and why."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code
        self.why = why


class Nvml:
    """The driver's library, open from creation until `close`; raises Refused where none opens."""

    def __init__(self) -> None:
        import pynvml  # loads the driver's library, so only where somebody asks

        self.api: Any = pynvml
        """The bindings: their constants."""
        self.absent = {
            pynvml.NVML_ERROR_NOT_SUPPORTED,
            pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
            pynvml.NVML_ERROR_DEPRECATED,
        }
        """Codes that mean: not with this driver and device, ask for something else."""
        try:
            self.ask("nvmlInit")
        except Refused as refused:
            raise Refused(refused.code, self._why_silent(refused)) from None

    def ask(self, function: str, *arguments: object) -> Any:  # noqa: ANN401  as the bindings
        """Return what a function of the bindings returns.

        Raises Refused.
        """
        try:
            return getattr(self.api, function)(*arguments)
        except self.api.NVMLError as error:
            raise Refused(error.value, str(error)) from None
        except AttributeError:  # bindings that are older than the function
            why = f"nvidia-ml-py has no {function}"
            raise Refused(self.api.NVML_ERROR_FUNCTION_NOT_FOUND, why) from None
        except Exception as error:  # a name that is no UTF-8, versions that don't fit, ...
            raise Refused(self.api.NVML_ERROR_UNKNOWN, str(error)) from None

    def text(self, function: str, *arguments: object) -> str:
        """Return an answer that is text; empty where it is refused."""
        try:
            answer = self.ask(function, *arguments)
        except Refused:
            return ""
        return answer.decode(errors="replace") if isinstance(answer, bytes) else str(answer)

    def close(self) -> None:
        """Let go of the library; it counts who has opened it."""
        try:
            self.ask("nvmlShutdown")
        except Refused:
            return  # nothing is left to let go of

    def _why_silent(self, refused: Refused) -> str:
        meanings = {getattr(self.api, name): why for name, why in WHY_SILENT.items()}
        meaning = meanings.get(refused.code, "the NVIDIA driver does not answer")
        return f"{meaning} ({refused.why})"
