"""NVIDIA's management library: every call returns an answer or raises NvmlError.

The bindings raise an exception class for each error code. They lack newer functions, and only a
call shows whether the driver's library has a function. All that becomes `NvmlError` here.
"""

from __future__ import annotations

import sys
from typing import Any

START_ERRORS = {
    "NVML_ERROR_LIBRARY_NOT_FOUND": "no NVIDIA driver",
    "NVML_ERROR_DRIVER_NOT_LOADED": "the NVIDIA driver is installed but not loaded",
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": "the NVIDIA driver was updated: reboot",
    "NVML_ERROR_NO_PERMISSION": "this user may not use the NVIDIA driver",
    "NVML_ERROR_FUNCTION_NOT_FOUND": "the NVIDIA driver is too old",
}
"""What an error code means when the library does not start."""


LIBRARY = "libnvidia-ml.so.1"
LIBRARY_NOT_FOUND = 12
"""The code of NVML_ERROR_LIBRARY_NOT_FOUND (nvml.h)."""


class NvmlError(Exception):
    """NVML did not answer: its error code, and why."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code
        self.why = why


def _look_for_library() -> None:
    """Raise NvmlError on Linux without the driver's library: the bindings take long to import."""
    if sys.platform != "linux":
        return
    import ctypes

    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        why = "no NVIDIA driver (NVML Shared Library Not Found)"
        raise NvmlError(LIBRARY_NOT_FOUND, why) from None


class Nvml:
    """The driver's library, open from creation until `close`; raises NvmlError if it can't open."""

    def __init__(self) -> None:
        _look_for_library()
        import pynvml

        self.api: Any = pynvml
        """The bindings: their constants."""
        self.absent = {
            pynvml.NVML_ERROR_NOT_SUPPORTED,
            pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
            pynvml.NVML_ERROR_DEPRECATED,
        }
        """Codes of a function that does not work with this driver and device: try another one."""
        try:
            self.ask("nvmlInit")
        except NvmlError as error:
            meanings = {getattr(pynvml, name): why for name, why in START_ERRORS.items()}
            meaning = meanings.get(error.code, "the NVIDIA driver does not answer")
            raise NvmlError(error.code, f"{meaning} ({error.why})") from None

    def ask(self, function: str, *arguments: object) -> Any:  # noqa: ANN401  as the bindings
        """Return what a function of the bindings returns.

        Raises NvmlError.
        """
        try:
            return getattr(self.api, function)(*arguments)
        except self.api.NVMLError as error:
            raise NvmlError(error.value, str(error)) from None
        except AttributeError:  # the bindings are older than the function
            why = f"nvidia-ml-py has no {function}"
            raise NvmlError(self.api.NVML_ERROR_FUNCTION_NOT_FOUND, why) from None
        except Exception as error:  # a name that is not UTF-8, versions that don't fit, ...
            raise NvmlError(self.api.NVML_ERROR_UNKNOWN, str(error)) from None

    def get(self, function: str, *arguments: object) -> Any:  # noqa: ANN401  as the bindings
        """Return what a function returns, None where it does not answer."""
        try:
            return self.ask(function, *arguments)
        except NvmlError:
            return None

    def text(self, function: str, *arguments: object) -> str:
        """Return an answer that is text, empty where there is none."""
        answer = self.get(function, *arguments)
        if answer is None:
            return ""
        return answer.decode(errors="replace") if isinstance(answer, bytes) else str(answer)

    def close(self) -> None:
        """Release the library, which counts its users."""
        self.get("nvmlShutdown")
