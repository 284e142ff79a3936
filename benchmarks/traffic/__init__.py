"""What training sends: counted in compiled programs, measured on the loopback interface, and what less of it costs."""

from __future__ import annotations
