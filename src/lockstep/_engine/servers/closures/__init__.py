"""Closures: functions that a coordinator schedules, that workers compute, and whose effects servers apply once."""
