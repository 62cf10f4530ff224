"""Fixtures of tests that push and pull images: a registry of their own; `make registry` brings it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from platformdirs import user_cache_path

from emulator.runtime.waiting import until
